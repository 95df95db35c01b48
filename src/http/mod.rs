//! a connection → [`request`] → [`Site`] → /metrics, /healthz or /readyz, and the connection ends.
//!
//! A *probe* is a question of whoever runs the process: `/healthz` asks whether a restart would help,
//! so what it depends on is in this process alone; `/readyz` asks whether it does its work, brokers
//! and lake included. The server has a thread of its own: it answers while all others are busy.

mod probe;
mod request;
mod site;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::exit::Stop;
use request::{HEAD_BYTES_MAX, Head, read_head};
pub use site::{Site, Worker};

/// So many connections are answered at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 32;
/// A request must have come, and its answer gone, within this.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a fault of accepting (too many open files) it is tried again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
pub struct Server {
    runtime: Option<Runtime>,
    /// Where it listens: with the port that the system chose, where 0 was asked for.
    pub address: SocketAddr,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// Another listens there, or the address is not this machine's.
    pub fn start(listen: SocketAddr, site: Site) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("http")
            .enable_all()
            .build()
            .context("cannot start the runtime of HTTP")?;
        let listener = runtime
            .block_on(TcpListener::bind(listen))
            .map_err(|error| {
                let hint =
                    "is another process there? set http.listen to another address, or remove it";
                Stop::failed(format!("cannot listen on {listen}"), hint).because(error)
            })?;
        let address = listener.local_addr().context("the address listened on")?;
        runtime.spawn(accept(listener, Arc::new(site)));
        tracing::info!(%address, "answering /metrics, /healthz and /readyz");
        Ok(Self {
            runtime: Some(runtime),
            address,
        })
    }
}

impl Drop for Server {
    /// Waits for nobody: a probe may hang on the lake's disk.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            // Whoever left, or is too slow, gets no answer.
            let _ = timeout(PATIENCE, converse(connection, &site)).await;
            drop(place);
        });
    }
}

/// One request, one answer.
async fn converse(mut connection: TcpStream, site: &Site) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(1_024);
    let answer = loop {
        if connection.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        match read_head(&bytes) {
            Head::Partial if bytes.len() < HEAD_BYTES_MAX => {}
            head => break site.answer(head).await,
        }
    };
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}

#[cfg(test)]
mod tests;
