// SPDX-License-Identifier: GPL-2.0

//! The owner of a socket: the memory cgroup that is charged, and the user and the network namespace
//! whose quotas of the link table its channel counts against.

#![deny(unsafe_code)]

use kernel::alloc::Flags;
use kernel::prelude::*;

use super::tcp::TcpMode;
use super::Sock;
use crate::kern::memcg::Memcg;
use crate::kern::net::Net;
use crate::kern::sock::Sk;
use crate::kern::task;
use crate::params;
use crate::proto::quota::Holder;

/// The owner of a socket: the program that made or accepted it; before accept(), that of the
/// listening socket.
#[derive(Clone)]
pub(crate) struct Owner {
    memcg: Memcg,
    holder: Holder,
    /// Its groups may use ZRS.
    may_use: bool,
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
            may_use: params::may_use(net),
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

    /// Runs the allocation `f` for data that has arrived. The socket's owner pays, also beyond the
    /// limit of its cgroup, as the amount is bounded. Sleeps if the kernel has no memory at hand.
    pub(crate) fn promised<R>(&self, f: impl Fn(Flags) -> Result<R>) -> Result<R> {
        let memcg = self.asked.lock().owner.memcg.clone();
        memcg.charge_arrived(f)
    }

    /// Whether ZRS is off for the socket: in its network namespace, or for its owner's groups.
    pub(super) fn is_off(&self) -> bool {
        !self.asked.lock().owner.may_use || !params::is_on(&self.net)
    }

    /// EACCES if ZRS is off for the socket, and TCP is not to carry it instead.
    pub(super) fn check_use(&self) -> Result {
        let tcp = self.asked.lock().tcp_mode == TcpMode::Auto;
        (tcp || !self.is_off()).then_some(()).ok_or(EACCES)
    }

    /// The user and the namespace whose quotas a channel of this socket counts against.
    pub(crate) fn holder(&self) -> Holder {
        self.asked.lock().owner.holder
    }
}
