// SPDX-License-Identifier: GPL-2.0

//! How a sock begins and ends: `struct proto`'s functions, and what `accept()` makes.
//!
//! Ownership: a sock's [`Object`] owns one count of the Rust side from `init` or `accept` to
//! `release`; the Rust
//! side owns one count of the sock from `attach` to `release`, which breaks the circle. A sock that
//! never gets as far as a file (`socket()` fails late) ends by `proto.destroy` instead.

use super::{
    callbacks::Callbacks,
    family::{SocketFamily, SocketOps, ALIVE},
    tcp::Slot,
    v6, Object, Sk, SkRef,
};
use crate::{bindings, kern::errno};
use core::ptr;
use kernel::{
    error::from_result,
    ffi::c_int,
    prelude::*,
    sync::{aref::ARef, atomic::Relaxed, Arc},
};

impl<T: SocketOps> Callbacks<T> {
    /// Gives the object of a new sock its Rust side, and the Rust side its sock.
    ///
    /// # Safety
    ///
    /// `sk` must be a new sock of this protocol, set up, that no other code uses yet.
    pub(super) unsafe fn give(sk: *mut bindings::sock, this: Arc<T>) {
        // SAFETY: the caller's promise.
        let skref: SkRef = ARef::from(unsafe { Sk::from_raw(sk) });
        T::attach(&this, skref);
        // SAFETY: as above.
        unsafe { (*sk.cast::<Object>()).this = Arc::into_raw(this).cast() };
    }

    /// Takes the Rust side out of a sock's object and releases it.
    ///
    /// # Safety
    ///
    /// `sk` must be a sock of this protocol, on which no call runs or will run.
    pub(super) unsafe fn take(sk: *mut bindings::sock) {
        // SAFETY: the caller's promise.
        let this = unsafe { ptr::replace(&raw mut (*sk.cast::<Object>()).this, ptr::null()) };
        if !this.is_null() {
            // SAFETY: came from `Arc::<T>::into_raw`, and has just been taken out.
            let this = unsafe { Arc::<T>::from_raw(this.cast()) };
            T::release(&this);
        }
        // SAFETY: as above.
        unsafe { &(*sk.cast::<Object>()).tcp }.clear();
    }

    /// Set-up of each of our socks after `sock_init_data`.
    ///
    /// # Safety
    ///
    /// `sk` must be a new sock of this protocol with its socket, that no other code uses yet.
    unsafe fn set_up(sk: *mut bindings::sock, sock: *mut bindings::socket) {
        ALIVE.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise, for all of it.
        unsafe {
            (*sk).sk_destruct = Some(sk_destruct);
            (*sk.cast::<Object>()).this = ptr::null();
            (&raw mut (*sk.cast::<Object>()).tcp).write(Slot::new());
            bindings::sock_reclassify(sk);
            let flags = &raw mut (*sock).flags;
            bindings::set_bit(bindings::socket_flags_SOCK_CUSTOM_SOCKOPT as usize, flags);
            if T::SUPPORT_ZC {
                bindings::set_bit(bindings::socket_flags_SOCK_SUPPORT_ZC as usize, flags);
            }
        }
    }

    /// A sock for an accepted connection, made in the accepting program's context, so that its
    /// memory cgroup pays.
    ///
    /// # Safety
    ///
    /// `sock` must be a live socket of this protocol, `newsock` a new one without a sock.
    pub(super) unsafe fn child_sk(
        sock: *mut bindings::socket,
        newsock: *mut bindings::socket,
        kern: bool,
    ) -> Result<*mut bindings::sock> {
        // SAFETY: the caller's promise.
        let listener = unsafe { Self::sk(sock) };
        // SAFETY: the caller's promise.
        let v6 = unsafe { Sk::from_raw(listener) }.is_v6();
        let (family, registered) = match v6 {
            true => (bindings::AF_INET6, &T::KIND.place().inet6),
            false => (bindings::AF_INET, &T::KIND.place().inet),
        };
        // SAFETY: the listener has a namespace; its family is registered while it lives.
        let sk = unsafe {
            bindings::sk_alloc(
                bindings::sock_net(listener),
                family as c_int,
                bindings::GFP_KERNEL,
                registered.proto.get(),
                c_int::from(kern),
            )
        };
        if sk.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: `sk` is new, and `newsock` has none. This is what `inet_create` does for
        // socket(), then what the sock of a connection has from its listener.
        unsafe {
            bindings::sock_init_data(newsock, sk);
            Self::set_up(sk, newsock);
            (*sk).sk_protocol = T::PROTOCOL;
            let inet = sk.cast::<bindings::inet_sock>();
            (*inet).uc_ttl = -1;
            (*inet).mc_ttl = 1;
            (*inet).pmtudisc = bindings::IP_PMTUDISC_WANT as u8;
            if v6 {
                v6::set_up(listener, sk);
            }
            inherit(listener, sk);
            bindings::security_sk_clone(listener, sk);
            bindings::security_sock_graft(sk.cast(), newsock);
            bindings::sk_state_store(sk, bindings::TCP_ESTABLISHED as c_int);
            (*newsock).state = bindings::socket_state_SS_CONNECTED;
        }
        Ok(sk)
    }

    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn proto_init(sk: *mut bindings::sock) -> c_int {
        from_result(|| {
            // SAFETY: `inet_create` calls this with the new sock, after `sock_init_data`.
            unsafe { Self::set_up(sk, (*sk).sk_socket) };
            // SAFETY: the protocol is registered, and not taken out while `socket()` makes one of
            // its socks.
            let context = unsafe { SocketFamily::<T>::context() };
            // SAFETY: as above.
            let this = T::init(&context.into(), unsafe { Sk::from_raw(sk) })?;
            // SAFETY: as above; it is not in a file yet.
            unsafe {
                // By whichever number it was asked for.
                (*sk).sk_protocol = T::PROTOCOL;
                Self::give(sk, this);
            }
            Ok(0)
        })
    }

    /// `sk_common_release` calls this when `socket()` fails after, or in, `proto_init`.
    ///
    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn proto_destroy(sk: *mut bindings::sock) {
        // SAFETY: there never was a file, so no call runs on it.
        unsafe { Self::take(sk) };
    }

    /// A program of a control group wants to bind a connecting socket to a port (`bpf_bind()`).
    /// The kernel wants a function here.
    ///
    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn proto_get_port(_sk: *mut bindings::sock, _port: u16) -> c_int {
        errno::EOPNOTSUPP.to_errno()
    }

    /// `sk_common_release` wants one. Our socks are in no hash table of the kernel's.
    ///
    /// # Safety
    ///
    /// See [`Callbacks`].
    pub(super) unsafe extern "C" fn proto_unhash(_sk: *mut bindings::sock) {}
}

/// The end of a sock. By then it has no Rust side any more.
///
/// # Safety
///
/// Only `sk_destruct` may call this, with a sock of ours whose last reference is gone.
unsafe extern "C" fn sk_destruct(sk: *mut bindings::sock) {
    // SAFETY: the caller's promise. What `inet_sock_destruct` wants of a stream: TCP_CLOSE (whoever
    // held the last reference may have set something else since the release), SOCK_DEAD (set by
    // sock_orphan).
    unsafe {
        (*sk).__sk_common.skc_state = bindings::TCP_CLOSE as u8;
        if Sk::from_raw(sk).is_v6() {
            bindings::inet6_sock_destruct(sk);
        } else {
            bindings::inet_sock_destruct(sk);
        }
    }
    ALIVE.fetch_sub(1, Relaxed);
}

/// The settings that a connection has from its listener, as with TCP, or a TCP socket from the one
/// it is inside.
///
/// # Safety
///
/// Both must be live socks, and `to` new.
pub(super) unsafe fn inherit(from: *mut bindings::sock, to: *mut bindings::sock) {
    macro_rules! copy {
        ($($field:ident)*) => {$(
            (*to).$field = (&raw const (*from).$field).read_volatile();
        )*};
    }
    // SAFETY: the caller's promise; the listener's settings may change at any time, and are words.
    unsafe {
        copy!(sk_rcvbuf sk_sndbuf sk_userlocks sk_rcvtimeo sk_sndtimeo sk_rcvlowat sk_lingertime
              sk_priority sk_mark sk_ll_usec);
        (*to).__sk_common.skc_bound_dev_if =
            (&raw const (*from).__sk_common.skc_bound_dev_if).read_volatile();
        for flag in [
            bindings::sock_flags_SOCK_LINGER,
            bindings::sock_flags_SOCK_KEEPOPEN,
            bindings::sock_flags_SOCK_LOCALROUTE,
            bindings::sock_flags_SOCK_ZEROCOPY,
        ] {
            if bindings::sock_flag(from, flag) {
                bindings::sock_set_flag(to, flag);
            }
        }
        let (from, to) = (
            from.cast::<bindings::inet_sock>(),
            to.cast::<bindings::inet_sock>(),
        );
        (*to).tos = (&raw const (*from).tos).read_volatile();
        (*to).uc_ttl = (&raw const (*from).uc_ttl).read_volatile();
        (*to).pmtudisc = (&raw const (*from).pmtudisc).read_volatile();
        (*to).local_port_range = (&raw const (*from).local_port_range).read_volatile();
    }
}
