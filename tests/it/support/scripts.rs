//! The library's scripts, as it has them.

use super::Server;

pub const ACQUIRE: &str = include_str!("../../../lua/lock_acquire.lua");
pub const RECOUNT: &str = include_str!("../../../lua/lock_recount.lua");
pub const RELEASE: &str = include_str!("../../../lua/lock_release.lua");
pub const MOVE: &str = include_str!("../../../lua/lock_move.lua");
pub const RENEW: &str = include_str!("../../../lua/lock_renew.lua");
pub const FORCE_UNLOCK: &str = include_str!("../../../lua/lock_force_unlock.lua");

pub const ALL: [&str; 19] = [
    ACQUIRE,
    RECOUNT,
    RELEASE,
    MOVE,
    RENEW,
    FORCE_UNLOCK,
    include_str!("../../../lua/fair_abandon.lua"),
    include_str!("../../../lua/fair_acquire.lua"),
    include_str!("../../../lua/fair_force_unlock.lua"),
    include_str!("../../../lua/fair_release.lua"),
    include_str!("../../../lua/fenced_acquire.lua"),
    include_str!("../../../lua/fenced_move.lua"),
    include_str!("../../../lua/read_acquire.lua"),
    include_str!("../../../lua/read_extend.lua"),
    include_str!("../../../lua/read_release.lua"),
    include_str!("../../../lua/read_renew.lua"),
    include_str!("../../../lua/rw_force_unlock.lua"),
    include_str!("../../../lua/write_acquire.lua"),
    include_str!("../../../lua/write_release.lua"),
];

/// Makes them known to the server from the start, so that each is asked for by one request.
pub fn load(server: &Server) {
    for source in ALL {
        redis::cmd("SCRIPT").arg("LOAD").arg(source).exec(&mut server.cli()).expect("it is Lua");
    }
}
