// SPDX-License-Identifier: GPL-2.0

//! Who a socket belongs to: the memory cgroup that pays for it, and whose share of the link table its channel is
//! counted in.

#![deny(unsafe_code)]

use super::Sock;
use crate::kern::memcg::Memcg;
use crate::kern::net::Net;
use crate::kern::sock::Sk;
use crate::kern::task;
use crate::proto::quota::Holder;

/// The owner of a socket: the program that made it or accepted it; until then, that of the listening one.
#[derive(Clone)]
pub(crate) struct Owner {
    memcg: Memcg,
    holder: Holder,
}

impl Owner {
    /// The owner of `sk`, a socket in `net` that the calling program makes. Root and who may administer the
    /// machine's network have no share to keep to, nor has the first namespace.
    pub(super) fn of(sk: &Sk, net: &Net) -> Self {
        let uid = sk.owner();
        let exempt = uid == 0 || task::may_administer_net();
        Self {
            memcg: Memcg::of(sk),
            holder: Holder {
                user: (!exempt).then_some(uid),
                net: (*net != Net::init()).then(|| net.inum()),
            },
        }
    }
}

impl Sock {
    /// Runs `f`, whose allocations with [`CHARGED`](crate::kern::memcg::CHARGED) the socket's owner pays for. `f`
    /// may sleep; without locks that forbid it.
    pub(crate) fn charge<R>(&self, f: impl FnOnce() -> R) -> R {
        let memcg = self.inner.lock().owner.memcg.clone();
        memcg.charge(f)
    }

    /// Whose share a channel of the socket's is counted in.
    pub(crate) fn holder(&self) -> Holder {
        self.inner.lock().owner.holder
    }
}
