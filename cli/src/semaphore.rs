//! `semaphore` and `plain-semaphore`: the permits of semaphores with and without leases.

use crate::args::{Connection, PlainSemaphoreCommand, SemaphoreCommand};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::locks::{permits_waited_for, reporting};
use crate::output::{line, write_out};
use redisson_lock::Client;
use serde_json::json;
use std::time::Duration;

/// Runs the command.
pub async fn semaphore(command: SemaphoreCommand, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| execute(client, command, connection.verbose).await).await
}

async fn execute(client: &Client, command: SemaphoreCommand, verbose: bool) -> Result<u8, Failure> {
    match command {
        SemaphoreCommand::Create { name, permits } => {
            created(&name, client.expirable_semaphore(&name).try_set_permits(permits).await?)?;
        }
        SemaphoreCommand::Count { name, json } => {
            let semaphore = client.expirable_semaphore(&name);
            let (free, taken) = (semaphore.available_permits().await?, semaphore.acquired_permits().await?);
            let all = semaphore.permits().await?;
            if json {
                line(&json!({"name": semaphore.name(), "free": free, "taken": taken, "permits": all}))?;
            } else {
                write_out(format!("free     {free}\ntaken    {taken}\npermits  {all}\n"))?;
            }
        }
        SemaphoreCommand::Acquire { name, lease, nonblock, wait } => {
            let semaphore = client.expirable_semaphore(&name).with_lease(lease);
            let acquire = async {
                match if nonblock { Some(Duration::ZERO) } else { wait } {
                    None => semaphore.acquire().await.map(Some),
                    Some(wait) => semaphore.try_acquire_for(wait).await,
                }
            };
            let what = async || permits_waited_for(&name, 1, semaphore.available_permits().await);
            let permit = reporting(verbose, what, acquire).await?.ok_or_else(|| busy(&name))?;
            if let Err(failure) = write_out(format!("{}\n", permit.ids().join(" "))) {
                // Nobody could release a permit without its id.
                permit.release().await?;
                return Err(failure);
            }
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

/// Runs the command for a semaphore without leases.
pub async fn plain_semaphore(command: PlainSemaphoreCommand, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| execute_plain(client, command, connection.verbose).await).await
}

async fn execute_plain(
    client: &Client,
    command: PlainSemaphoreCommand,
    verbose: bool,
) -> Result<u8, Failure> {
    match command {
        PlainSemaphoreCommand::Create { name, permits } => {
            created(&name, client.semaphore(&name).try_set_permits(permits).await?)?;
        }
        PlainSemaphoreCommand::Count { name } => {
            write_out(format!("{}\n", client.semaphore(&name).available_permits().await?))?;
        }
        PlainSemaphoreCommand::Acquire { name, permits, nonblock, wait } => {
            let semaphore = client.semaphore(&name);
            let acquire = async {
                match if nonblock { Some(Duration::ZERO) } else { wait } {
                    None => semaphore.acquire_many(permits).await.map(Some),
                    Some(wait) => semaphore.try_acquire_many_for(permits, wait).await,
                }
            };
            let what = async || permits_waited_for(&name, permits, semaphore.available_permits().await);
            reporting(verbose, what, acquire).await?.ok_or_else(|| busy(&name))?.forget();
        }
        PlainSemaphoreCommand::Release { name, permits } => {
            // A release would create the semaphore, for example after a typing error.
            if !client.semaphore(&name).release_if_exists(permits).await? {
                return Err(Failure::Lost(format!("the semaphore `{name}` does not exist: create it first")));
            }
        }
    }
    Ok(0)
}

fn created(name: &str, is_new: bool) -> Result<(), Failure> {
    let exists = || Failure::Busy(format!("the semaphore `{name}` exists: it is unchanged"));
    is_new.then_some(()).ok_or_else(exists)
}

fn busy(name: &str) -> Failure {
    Failure::Busy(format!("no permit of `{name}` is free: try again later, or wait longer with -w"))
}
