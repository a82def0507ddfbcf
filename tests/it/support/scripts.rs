//! The library's scripts, as it has them.

pub const ACQUIRE: &str = include_str!("../../../lua/lock_acquire.lua");
pub const RECOUNT: &str = include_str!("../../../lua/lock_recount.lua");
pub const RELEASE: &str = include_str!("../../../lua/lock_release.lua");
pub const MOVE: &str = include_str!("../../../lua/lock_move.lua");
pub const RENEW: &str = include_str!("../../../lua/lock_renew.lua");
pub const FORCE_UNLOCK: &str = include_str!("../../../lua/lock_force_unlock.lua");

pub const ALL: [&str; 6] = [ACQUIRE, RECOUNT, RELEASE, MOVE, RENEW, FORCE_UNLOCK];
