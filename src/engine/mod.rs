//! Serves one key at a time: its queue, the actor that serves the queue, attempts, contention, release and hand-off.
//!
//! ARCHITECTURE.md lists the files.

pub mod acquire;
pub mod actor;
pub mod attempt;
pub mod background;
pub mod busy;
pub mod contention;
mod crowd;
pub mod direct;
pub mod key_actor;
pub mod level;
pub mod pending;
pub mod pipelined;
pub mod release;
pub mod run;
pub mod session;
pub mod single;
pub mod step;
pub mod unfinished;
pub mod waiters;
pub mod work;

use crate::config::options::Options;
use crate::connection::{Connection, Topology};
use crate::engine::session::Session;
use crate::error::Result;
use crate::runtime::sync::task::JoinHandle;
use std::sync::Arc;

/// Connects a client, and starts its tasks on the current runtime.
pub(crate) async fn connect(servers: Topology, options: Options) -> Result<Arc<Session>> {
    let connection = Connection::connect(&servers, &options).await?;
    Ok(serve(&servers, options, connection))
}

/// Starts the tasks of a client on the current runtime, which then connect.
pub(crate) fn start(servers: &Topology, options: Options) -> Result<Arc<Session>> {
    let connection = Connection::start(servers, &options)?;
    Ok(serve(servers, options, connection))
}

fn serve(servers: &Topology, options: Options, connection: (Connection, JoinHandle<()>)) -> Arc<Session> {
    let (session, unserved) = Session::start(servers, options, connection);
    session.spawn_essential(background::serve(unserved));
    session
}
