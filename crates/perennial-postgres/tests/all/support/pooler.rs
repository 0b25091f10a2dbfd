//! A pooler that assigns connections per transaction, as pgbouncer does with `pool_mode = transaction`.
//!
//! Every client logs in on a connection of its own. From then on, each of its transactions runs on the connection that
//! has been idle for the longest time, which is rarely its own.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::host_of;

/// What asks for an encrypted connection, in place of a version.
const ENCRYPTION_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();

/// The URL of a server through a new pooler.
pub(crate) fn through_pooler(url: &str) -> String {
    let server = host_of(url).to_owned();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let through = url.replace(&server, &format!("127.0.0.1:{}", listener.local_addr().unwrap().port()));
    let pool: Arc<Pool> = Arc::default();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (pool, server) = (Arc::clone(&pool), TcpStream::connect(&server).unwrap());
            [&client, &server].into_iter().for_each(|stream| stream.set_nodelay(true).unwrap());
            thread::spawn(move || {
                // An error means that one of the two is gone.
                let _ = log_in(&client, &server).and_then(|()| pool.serve(&client, server));
            });
        }
    });
    through
}

#[derive(Default)]
struct Pool {
    idle: Mutex<VecDeque<TcpStream>>,
    freed: Condvar,
}

impl Pool {
    fn serve(&self, client: &TcpStream, own: TcpStream) -> Result<()> {
        self.give_back(own);
        loop {
            let first = message(client)?;
            if first[0] == b'X' {
                return Ok(());
            }
            let server = self.take();
            run_transaction(client, &server, first)?;
            self.give_back(server);
        }
    }

    fn take(&self) -> TcpStream {
        let idle = self.idle.lock().unwrap();
        let mut idle = self.freed.wait_while(idle, |idle| idle.is_empty()).unwrap();
        idle.pop_front().unwrap()
    }

    fn give_back(&self, server: TcpStream) {
        self.idle.lock().unwrap().push_back(server);
        self.freed.notify_one();
    }
}

/// Passes on the messages of a login, until the server is ready.
fn log_in(mut client: &TcpStream, mut server: &TcpStream) -> Result<()> {
    let mut begin = startup(client)?;
    if begin[4..8] == ENCRYPTION_REQUEST {
        client.write_all(b"N")?;
        begin = startup(client)?;
    }
    server.write_all(&begin)?;
    loop {
        let answer = message(server)?;
        client.write_all(&answer)?;
        let asks_for_password = answer[0] == b'R' && answer[5..9] == 3_u32.to_be_bytes();
        match answer[0] {
            _ if asks_for_password => server.write_all(&message(client)?)?,
            b'Z' => return Ok(()),
            _ => {}
        }
    }
}

/// Passes on messages, from this one on, until the server is outside of a transaction.
fn run_transaction(mut client: &TcpStream, mut server: &TcpStream, first: Vec<u8>) -> Result<()> {
    let mut next = first;
    loop {
        server.write_all(&next)?;
        if matches!(next[0], b'Q' | b'S') {
            loop {
                let answer = message(server)?;
                client.write_all(&answer)?;
                match (answer[0], answer[answer.len() - 1]) {
                    (b'Z', b'I') => return Ok(()),
                    (b'Z', _) => break,
                    _ => {}
                }
            }
        }
        next = message(client)?;
    }
}

/// The first message, which has no kind.
fn startup(mut client: &TcpStream) -> Result<Vec<u8>> {
    let mut message = vec![0; 4];
    client.read_exact(&mut message)?;
    read_rest(client, &mut message, 0)?;
    Ok(message)
}

/// One message: its kind, its length, and the rest.
fn message(mut from: &TcpStream) -> Result<Vec<u8>> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message)?;
    read_rest(from, &mut message, 1)?;
    Ok(message)
}

/// Reads the rest of a message whose length is at this place. The length counts itself.
fn read_rest(mut from: &TcpStream, message: &mut Vec<u8>, place: usize) -> Result<()> {
    let length = u32::from_be_bytes(message[place..place + 4].try_into().expect("four bytes"));
    let length = usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
    let read = message.len();
    message.resize(place + length, 0);
    from.read_exact(&mut message[read..])
}
