//! `latch`: a count-down latch.

use crate::args::{Connection, LatchCommand};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::locks::reporting;
use crate::output::write_out;

/// Runs the command.
pub async fn latch(command: LatchCommand, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| execute(client, command, connection.verbose).await).await
}

async fn execute(
    client: &redisson_lock::Client,
    command: LatchCommand,
    verbose: bool,
) -> Result<u8, Failure> {
    match command {
        LatchCommand::Create { name, count } => {
            if !client.count_down_latch(&name).try_set_count(count).await? {
                return Err(Failure::Busy(format!("the latch `{name}` exists: it is unchanged")));
            }
        }
        LatchCommand::CountDown { name } => client.count_down_latch(&name).count_down().await?,
        LatchCommand::Count { name } => {
            write_out(format!("{}\n", client.count_down_latch(&name).count().await?))?;
        }
        LatchCommand::Wait { name, wait } => {
            let latch = client.count_down_latch(&name);
            let open = async {
                match wait {
                    None => latch.wait().await.map(|()| true),
                    Some(wait) => latch.wait_for(wait).await,
                }
            };
            let what = async || match latch.count().await {
                Ok(0) => None,
                Ok(count) => Some(format!("the latch `{name}`, whose count is {count}")),
                Err(error) => Some(format!("the latch `{name}`: {error}")),
            };
            if !reporting(verbose, what, open).await? {
                return Err(Failure::Busy(format!(
                    "the latch `{name}` is still closed: wait longer with -w"
                )));
            }
        }
    }
    Ok(0)
}
