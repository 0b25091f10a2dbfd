//! The threads on which payloads of messages and tasks are encoded and decoded.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use perennial_core::codec::EncodingTask;

/// More than one, because a codec may wait for a disk or a service.
const THREADS: usize = 4;

/// Starts the threads. They end when the returned closure is dropped and all its tasks are done.
pub(super) fn start() -> impl Fn(EncodingTask) + Send + Sync {
    let (sender, receiver) = mpsc::channel::<EncodingTask>();
    let receiver = Arc::new(Mutex::new(receiver));
    for number in 0..THREADS {
        let receiver = Arc::clone(&receiver);
        let run = move || {
            loop {
                let task = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match task {
                    Ok(task) => task(),
                    Err(mpsc::RecvError) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("perennial-codec-{number}")).spawn(run);
        thread.expect("the system starts threads");
    }
    move |task| {
        if let Err(mpsc::SendError(task)) = sender.send(task) {
            // All threads have ended; the task still has to reply to its caller.
            task();
        }
    }
}
