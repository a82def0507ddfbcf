//! `semaphore`: the permits of an expirable semaphore.

use crate::args::{Connection, SemaphoreCommand};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::hold::line;
use serde_json::json;
use std::time::Duration;

/// Runs the command.
pub async fn semaphore(command: SemaphoreCommand, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| execute(client, command).await).await
}

async fn execute(client: &redisson_lock::Client, command: SemaphoreCommand) -> Result<u8, Failure> {
    match command {
        SemaphoreCommand::Create { name, permits } => {
            if !client.expirable_semaphore(&name).try_set_permits(permits).await? {
                return Err(Failure::Busy(format!("the semaphore `{name}` exists: it is unchanged")));
            }
        }
        SemaphoreCommand::Count { name, json } => {
            let semaphore = client.expirable_semaphore(&name);
            let (free, taken) = (semaphore.available_permits().await?, semaphore.acquired_permits().await?);
            let all = semaphore.permits().await?;
            if json {
                line(&json!({"name": semaphore.name(), "free": free, "taken": taken, "permits": all}))?;
            } else {
                println!("free     {free}\ntaken    {taken}\npermits  {all}");
            }
        }
        SemaphoreCommand::Acquire { name, lease, nonblock, wait } => {
            let semaphore = client.expirable_semaphore(&name).with_lease(lease);
            let permit = match if nonblock { Some(Duration::ZERO) } else { wait } {
                None => Some(semaphore.acquire().await?),
                Some(wait) => semaphore.try_acquire_for(wait).await?,
            };
            let Some(permit) = permit else {
                return Err(Failure::Busy(format!(
                    "no permit of `{name}` is free: try again later, or wait longer with -w"
                )));
            };
            println!("{}", permit.ids().join(" "));
            permit.forget();
        }
        SemaphoreCommand::Release { name, id } => {
            if !client.expirable_semaphore(&name).release(&id).await? {
                return Err(Failure::Lost(format!("`{name}` has no permit {id}: its lease has ended")));
            }
        }
    }
    Ok(0)
}
