// SPDX-License-Identifier: GPL-2.0

//! The owner of a socket: the memory cgroup that is charged, and the user and the network namespace
//! whose quotas of the link table its channel counts against.

#![deny(unsafe_code)]

use super::Sock;
use crate::kern::memcg::Memcg;
use crate::kern::net::Net;
use crate::kern::sock::Sk;
use crate::kern::task;
use crate::proto::quota::Holder;

/// The owner of a socket: the program that made or accepted it; before accept(), that of the
/// listening socket.
#[derive(Clone)]
pub(crate) struct Owner {
    memcg: Memcg,
    holder: Holder,
}

/// The user and the namespace whose quotas `sk` counts against, a socket in `net` that the calling
/// program makes. See [`Owner::of`].
pub(crate) fn holder_of(sk: &Sk, net: &Net) -> Holder {
    let uid = sk.owner();
    let exempt = uid == 0 || task::may_administer_net();
    Holder {
        user: (!exempt).then(|| task::answers_for(uid)),
        net: (*net != Net::init()).then(|| net.inum()),
    }
}

impl Owner {
    /// The owner of `sk`, a socket in `net` that the calling program makes. There is no quota for
    /// root, for tasks that may administer the machine's network, and for the initial network
    /// namespace.
    pub(super) fn of(sk: &Sk, net: &Net) -> Self {
        Self {
            memcg: Memcg::of(sk),
            holder: holder_of(sk, net),
        }
    }
}

impl Sock {
    /// Runs `f`, whose allocations with [`CHARGED`](crate::kern::memcg::CHARGED) the socket's owner
    /// pays for. `f` may sleep; without locks that forbid it.
    pub(crate) fn charge<R>(&self, f: impl FnOnce() -> R) -> R {
        let memcg = self.asked.lock().owner.memcg.clone();
        memcg.charge(f)
    }

    /// The user and the namespace whose quotas a channel of this socket counts against.
    pub(crate) fn holder(&self) -> Holder {
        self.asked.lock().owner.holder
    }
}
