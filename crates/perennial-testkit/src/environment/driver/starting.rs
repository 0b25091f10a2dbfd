//! Starts instances as a client does, on the virtual clock.

use perennial::{ClientError, OnExisting, StartOptions};
use perennial_core::shard::{Request, Response, Start, StartRequest};
use perennial_core::store::{SendOutcome, Status};
use perennial_core::{InstanceKey, Job, Payload};

use super::{BEGIN_MS, Driver};

impl Driver {
    /// Starts an instance. Keys and seeds are the same in every run of a test, with or without faults.
    pub(in super::super) fn start(
        &mut self,
        name: &str,
        id: &str,
        input: &Payload,
        options: &StartOptions,
    ) -> Result<(), ClientError> {
        loop {
            self.starts += 1;
            let start = options.to_start(name, input.clone(), self.starts, self.now_ms());
            let event = start.jobs.first().cloned();
            let Some(status) = self.start_once(id, start) else { break };
            if let Some(Job::ExternalEvent { name, payload, .. }) = event
                && !status.is_final()
            {
                self.raise(id, &name, &payload);
                break;
            }
            match options.policy() {
                OnExisting::Use => break,
                OnExisting::ReplaceEnded if status.is_final() => self.make_way(id, false)?,
                OnExisting::TerminateAndReplace => self.make_way(id, true)?,
                OnExisting::Reject | OnExisting::ReplaceEnded => {
                    return Err(ClientError::AlreadyExists { id: id.to_owned(), status });
                }
            }
        }
        self.latest = Some(id.to_owned());
        Ok(())
    }

    /// Starts an instance, unless the id exists: then returns the status of the existing one.
    fn start_once(&mut self, id: &str, start: Start) -> Option<Status> {
        let key = InstanceKey::new(BEGIN_MS, u128::from(self.starts));
        if start.not_before_ms.is_some() {
            let outcome = self.node.send_start_as(key, id, start);
            self.settle();
            return match outcome {
                SendOutcome::Sent(_) => None,
                SendOutcome::IdTaken(row) => Some(row.status),
                other => panic!("{id:?} cannot be started: {other:?}"),
            };
        }
        let crashes = self.crashes;
        let Start { started, jobs, .. } = start;
        let answer = self.request(id, || {
            Request::Start(Box::new(StartRequest { key, started: started.clone(), jobs: jobs.clone() }))
        });
        match answer {
            Response::Started(_) => None,
            // It is the instance whose start was written before the crash.
            Response::AlreadyExists(_) if self.crashes > crashes => None,
            Response::AlreadyExists(status) => Some(status),
            other => panic!("{id:?} cannot be started: {other:?}"),
        }
    }

    /// Deletes the instance with an id, and its children. With `force`, terminates running ones first.
    fn make_way(&mut self, id: &str, force: bool) -> Result<(), ClientError> {
        loop {
            let tokio = self.tokio.as_ref().expect("only `drop` takes it");
            match tokio.block_on(self.client.delete(id, false)) {
                Ok(_) => return Ok(()),
                Err(ClientError::NotEnded { id, .. }) if force => {
                    let request = || Request::Terminate { reason: "deleted".to_owned() };
                    self.request(&id, request);
                }
                Err(ClientError::NotEnded { id, status }) => {
                    return Err(ClientError::AlreadyExists { id, status });
                }
                Err(error) => return Err(error),
            }
        }
    }
}
