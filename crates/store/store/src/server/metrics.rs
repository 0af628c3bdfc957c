//! Serves metrics over HTTP, for Prometheus, on a separate thread.

use super::ServerError;
use super::run::NodeHandle;
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

/// How long a data thread may take to report its counters.
const PATIENCE: Duration = Duration::from_secs(1);

/// A handle of the thread that serves the metrics.
pub(super) struct Handle {
    /// The address at which the metrics are served.
    pub(super) bound: SocketAddr,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Stops serving; the address is free on return.
    pub(super) fn end(self) {
        let _ = self.end.send(()); // the thread may have ended already
        let _ = self.thread.join(); // a thread that panicked has reported that
    }
}

/// Serves `/metrics` of the nodes at `address`.
pub(super) fn serve(
    address: SocketAddr,
    nodes: Vec<(Outbox, NodeHandle)>,
) -> Result<Handle, ServerError> {
    let what = || {
        format!(
            "serve metrics at {address} (choose another address with --metrics, or `--metrics \
             none`)"
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

/// Collects the counters in Prometheus' text format; `None` if a node does not answer. If there are
/// several nodes, each counter has the node's number as a label.
fn collect(nodes: &[(Outbox, NodeHandle)]) -> Option<String> {
    let request = |(outbox, data): &(Outbox, NodeHandle)| {
        let (sender, receiver) = channel();
        let requested = outbox.send(Command::Stats(sender));
        data.ring();
        requested.then_some(receiver)
    };
    let requested: Vec<_> = nodes.iter().map(request).collect::<Option<_>>()?;
    let mut all = Vec::new();
    for (number, receiver) in (1..).zip(requested) {
        let figures = receiver.recv_timeout(PATIENCE).ok()?;
        all.extend(
            figures.into_iter().map(|figure| {
                if nodes.len() > 1 { with_node_label(figure, number) } else { figure }
            }),
        );
    }
    Some(render_figures(all))
}

/// Adds the node's number to a figure's labels.
fn with_node_label(figure: Figure, number: u32) -> Figure {
    let name = match figure.name.split_once('{') {
        Some((name, labels)) => format!("{name}{{node=\"{number}\",{labels}"),
        None => format!("{}{{node=\"{number}\"}}", figure.name),
    };
    Figure { name: name.into(), value: figure.value }
}

/// Renders figures as text. Figures with the same name differ in their labels. They follow the line
/// that states the type of that name.
fn render_figures(figures: Vec<Figure>) -> String {
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
    use super::{Figure, render_figures, with_node_label};

    #[test]
    fn figures_of_one_name_stand_below_one_type() {
        let up = |device, value| Figure::labelled("device_up", &[("device", device)], value);
        let figures =
            vec![Figure::new("reads_total", 7), up("a", 1), Figure::new("objects", 3), up("b", 0)];
        let want = "# TYPE sprat_reads_total counter\nsprat_reads_total 7\n# TYPE sprat_device_up \
                    gauge\n\
                    sprat_device_up{device=\"a\"} 1\nsprat_device_up{device=\"b\"} 0\n\
                    # TYPE sprat_objects gauge\nsprat_objects 3\n";
        assert_eq!(render_figures(figures), want);
    }

    #[test]
    fn counters_of_several_nodes_are_labelled() {
        let up = Figure::labelled("device_up", &[("device", "a")], 1);
        assert_eq!(with_node_label(up, 2).name, "device_up{node=\"2\",device=\"a\"}");
        assert_eq!(with_node_label(Figure::new("objects", 3), 1).name, "objects{node=\"1\"}");
    }
}
