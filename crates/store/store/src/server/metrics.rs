//! Metrics over HTTP, for Prometheus, on a thread of their own.

use super::ServerError;
use super::run::Stop;
use crate::master::{Command, Outbox};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use sprat_net::Figure;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the data thread may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that serves them.
pub(super) struct Handle {
    /// Where they are served.
    pub(super) bound: SocketAddr,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Ends it; the address is free on return.
    pub(super) fn end(self) {
        let _ = self.end.send(()); // it may have ended
        let _ = self.thread.join(); // a thread that panicked has said so
    }
}

/// Serves `/metrics` of the nodes at `address`.
pub(super) fn serve(
    address: SocketAddr,
    nodes: Vec<(Outbox, Stop)>,
) -> Result<Handle, ServerError> {
    let what = || {
        format!(
            "serve metrics at {address} (choose another address with --metrics, or `--metrics none`)"
        )
    };
    let listener = std::net::TcpListener::bind(address).map_err(ServerError::system(what()))?;
    listener.set_nonblocking(true).map_err(ServerError::system(what()))?;
    let bound = listener.local_addr().map_err(ServerError::system(what()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(ServerError::system(what()))?;
    let answer = move || {
        let text = collect(&nodes);
        async move { text.ok_or(StatusCode::SERVICE_UNAVAILABLE) }
    };
    let app = Router::new().route("/metrics", get(answer));
    let (end, ended) = oneshot::channel::<()>();
    let run = move || {
        runtime.block_on(async {
            let serves = async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                axum::serve(listener, app).await
            };
            tokio::select! {
                served = serves => {
                    if let Err(error) = served {
                        tracing::error!("metrics are not served any more: {error}");
                    }
                }
                _ = ended => {}
            }
        });
    };
    let thread = thread::Builder::new().name("sprat-metrics".into()).spawn(run);
    Ok(Handle { bound, end, thread: thread.map_err(ServerError::system("start a thread"))? })
}

/// The counters in Prometheus' text format. Those of several nodes say whose they are.
fn collect(nodes: &[(Outbox, Stop)]) -> Option<String> {
    let ask = |(outbox, data): &(Outbox, Stop)| {
        let (sender, receiver) = channel();
        let asked = outbox.send(Command::Stats(sender));
        data.ring();
        asked.then_some(receiver)
    };
    let asked: Vec<_> = nodes.iter().map(ask).collect::<Option<_>>()?;
    let mut all = Vec::new();
    for (number, receiver) in (1..).zip(asked) {
        let figures = receiver.recv_timeout(PATIENCE).ok()?;
        all.extend(
            figures
                .into_iter()
                .map(|figure| if nodes.len() > 1 { of_node(figure, number) } else { figure }),
        );
    }
    Some(text_of(all))
}

/// The figure with a label that says whose it is.
fn of_node(figure: Figure, number: u32) -> Figure {
    let name = match figure.name.split_once('{') {
        Some((name, labels)) => format!("{name}{{node=\"{number}\",{labels}"),
        None => format!("{}{{node=\"{number}\"}}", figure.name),
    };
    Figure { name: name.into(), value: figure.value }
}

/// Figures as text: those of one name, which differ in their labels, stand together below its type.
fn text_of(figures: Vec<Figure>) -> String {
    let mut named: Vec<(String, Vec<Figure>)> = Vec::new();
    for figure in figures {
        let name = figure.name.split('{').next().unwrap_or_default();
        match named.iter_mut().find(|(other, _)| other == name) {
            Some((_, figures)) => figures.push(figure),
            None => named.push((name.to_owned(), vec![figure])),
        }
    }
    let mut text = String::new();
    for (name, figures) in named {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        writeln!(text, "# TYPE sprat_{name} {kind}").expect("writing to a string");
        for Figure { name, value } in figures {
            writeln!(text, "sprat_{name} {value}").expect("writing to a string");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Figure, of_node, text_of};

    #[test]
    fn figures_of_one_name_stand_below_one_type() {
        let up = |device, value| Figure::labelled("device_up", &[("device", device)], value);
        let figures =
            vec![Figure::new("reads_total", 7), up("a", 1), Figure::new("objects", 3), up("b", 0)];
        let want = "# TYPE sprat_reads_total counter\nsprat_reads_total 7\n# TYPE sprat_device_up gauge\n\
                    sprat_device_up{device=\"a\"} 1\nsprat_device_up{device=\"b\"} 0\n\
                    # TYPE sprat_objects gauge\nsprat_objects 3\n";
        assert_eq!(text_of(figures), want);
    }

    #[test]
    fn nodes_are_told_apart() {
        let up = Figure::labelled("device_up", &[("device", "a")], 1);
        assert_eq!(of_node(up, 2).name, "device_up{node=\"2\",device=\"a\"}");
        assert_eq!(of_node(Figure::new("objects", 3), 1).name, "objects{node=\"1\"}");
    }
}
