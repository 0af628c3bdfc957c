//! The configuration of a box: a small TOML file, or the corresponding flags.
//!
//! ```toml
//! forward = "switch"          # or "cross", which is the default for two ports
//! memory = "1GB"
//!
//! [line]                      # what every line does
//! delay = "100ms"
//!
//! [[port]]
//! open = "tap:a0@left"
//!
//! [[port]]
//! open = "tap:b0@right"
//! line = { rate = "2Gb/s", queue = "harmonize" }      # more for the line to this port
//! ```
//!
//! A box with more than two ports is a switch, unless `pairs` says which ports are joined:
//! `pairs = [["a0", "b0"], ["c0", "d0"]]`.

mod pairs;
mod ports;
mod told;
mod words;

use crate::engine::{Engine, EngineError, EnginePlan, Forwarding, MAX_PORTS, Memories, Tolerance};
use crate::line::LineSettings;
use crate::memory::MAX_MEMORY;
use crate::switch::AGEING;
use serde::Deserialize;

pub use pairs::PairError;
pub(crate) use pairs::in_pairs;
pub use ports::{PortSpec, PortSpecError};
pub use words::{LineWords, Word, WordError, set, tolerance};

/// The configuration of a box, as parsed from TOML and not yet checked.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoxWords {
    /// `cross` or `switch`. Default: `cross` for two ports or if there are pairs, otherwise
    /// `switch`.
    pub forward: Option<Word>,
    /// The pairs of joined ports, by name. If there are only two ports, they are a pair by default.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Time after which a switch forgets an address that has sent no frame. Default: 300 s.
    pub ageing: Option<Word>,
    /// Packet memory of each worker, in bytes, up to 16 GiB. Default: as much as its lines need.
    pub memory: Option<Word>,
    /// Settings of every line.
    #[serde(default)]
    pub line: LineWords,
    /// The ports.
    #[serde(default, rename = "port")]
    pub ports: Vec<PortWords>,
}

/// The configuration of a port, as parsed from TOML and not yet checked.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortWords {
    /// The kind of port and its interface or device: see [`PortSpec`].
    pub open: String,
    /// Settings of the line to the port, in addition to those of every line.
    #[serde(default)]
    pub line: LineWords,
}

/// A valid configuration of a box.
#[derive(Clone, Debug)]
pub struct BoxConfig {
    /// The box's name, which salts its seed. Default: the list of its ports.
    pub name: String,
    /// The ports, each with the settings of the line that leads to it. Without a switch, ports 0
    /// and 1 are a pair, and so on.
    pub ports: Vec<(PortSpec, LineSettings)>,
    /// How the ports are joined.
    pub forwarding: Forwarding,
    /// Packet memory of each worker, in bytes. With `None`, as much as its lines need.
    pub memory: Option<u64>,
    /// How much lateness is tolerated before the report says that the box did not keep up.
    pub tolerance: Tolerance,
}

/// Why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML, or has unknown keys.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A setting has an invalid value.
    #[error("{place}: {error}")]
    Word {
        /// The place in the configuration at which the value was given.
        place: String,
        /// What is wrong.
        error: WordError,
    },
    /// A port is invalid.
    #[error(transparent)]
    Port(#[from] PortSpecError),
    /// This many ports cannot be joined in this way.
    #[error(
        "ports given: {0}; a box has two that are each other's far end (forward = \"cross\"), or \
         several such pairs, or is a switch: of 2 to {MAX_PORTS} ports"
    )]
    Ports(usize),
    /// The pairs are invalid.
    #[error("{0}")]
    Pairs(#[from] PairError),
    /// Two ports have the same name.
    #[error("two ports are called {0}: give the interfaces names of their own")]
    Twice(String),
}

impl BoxWords {
    /// Parses TOML.
    ///
    /// # Errors
    /// `text` is not TOML, or has unknown fields. The error states the line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Ok(toml::from_str(text)?)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check(&self) -> Result<BoxConfig, ConfigError> {
        let at = |place: &str| {
            let place = place.to_owned();
            move |error| ConfigError::Word { place, error }
        };
        let of_box = |key: &str, word: &Word, want: &'static str| {
            at("the box")(WordError {
                key: key.to_owned(),
                value: word.0.clone(),
                want: want.into(),
            })
        };
        let mut common = LineSettings::default();
        self.line.apply(&mut common).map_err(at("every line"))?;
        let mut ports: Vec<(PortSpec, LineSettings)> = Vec::new();
        for words in &self.ports {
            let spec: PortSpec = words.open.parse()?;
            let mut settings = common.clone();
            words.line.apply(&mut settings).map_err(at(&format!("the line to {}", spec.name())))?;
            if ports.iter().any(|(other, _)| other.name() == spec.name()) {
                return Err(ConfigError::Twice(spec.name().to_owned()));
            }
            ports.push((spec, settings));
        }
        let ageing = match &self.ageing {
            None => AGEING,
            Some(word) => sprat_units::duration(&word.0)
                .ok()
                .filter(|ageing| !ageing.is_zero())
                .ok_or_else(|| of_box("ageing", word, "a time, such as 300s"))?,
        };
        let forwarding = match self.forward.as_ref().map(|word| (word, word.0.as_str())) {
            None if ports.len() == 2 || !self.pairs.is_empty() => Forwarding::Cross,
            Some((_, "cross")) => Forwarding::Cross,
            None | Some((_, "switch")) => Forwarding::Switch(ageing),
            Some((word, _)) => return Err(of_box("forward", word, "cross or switch")),
        };
        if !forwarding.joins(ports.len()) {
            return Err(ConfigError::Ports(ports.len()));
        }
        match forwarding {
            Forwarding::Switch(_) if !self.pairs.is_empty() => return Err(PairError::Switch.into()),
            Forwarding::Cross if !self.pairs.is_empty() => {
                let names: Vec<_> = ports.iter().map(|(spec, _)| spec.name()).collect();
                let order = in_pairs(&self.pairs, &names)?;
                ports = order.into_iter().map(|at| ports[at].clone()).collect();
            }
            Forwarding::Cross if ports.len() > 2 => {
                return Err(PairError::Missing(ports.len()).into());
            }
            _ => {}
        }
        let memory = self.memory.as_ref().map(|word| {
            let bytes = sprat_units::size(&word.0).ok().filter(|bytes| *bytes <= MAX_MEMORY);
            bytes.ok_or_else(|| of_box("memory", word, "bytes up to 16GiB, such as 1GB"))
        });
        let name = ports.iter().map(|(spec, _)| spec.to_string()).collect::<Vec<_>>().join(" ");
        Ok(BoxConfig {
            name,
            ports,
            forwarding,
            memory: memory.transpose()?,
            tolerance: Tolerance::default(),
        })
    }
}

impl BoxConfig {
    /// Makes [`start`](Self::start) open interfaces even if they are in use.
    pub fn force(&mut self) {
        for (spec, _) in &mut self.ports {
            spec.force();
        }
    }

    /// Allocates the packet memory, opens the ports and starts the box.
    ///
    /// # Errors
    /// The ports cannot be joined in this way, there is too little free memory, a port cannot be
    /// opened, or the kernel refuses a call.
    pub fn start(self) -> Result<Engine, EngineError> {
        let Self { name, ports, forwarding, memory, tolerance } = self;
        // Packets arrive as soon as ports are open, and making memory takes seconds.
        let devices: Vec<_> = ports.iter().map(|(spec, _)| spec.is_device()).collect();
        let memories =
            Some(Memories::make(forwarding, &devices, ports.iter().map(|(_, line)| line), memory)?);
        PortSpec::prepare(ports.iter().map(|(spec, _)| spec))?;
        let open = |(spec, settings): (PortSpec, LineSettings)| {
            Ok::<_, EngineError>((spec.open()?, settings))
        };
        let ports = ports.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Engine::start(EnginePlan {
            name,
            memories,
            tolerance,
            ..EnginePlan::new(ports, forwarding)
        })
    }
}
