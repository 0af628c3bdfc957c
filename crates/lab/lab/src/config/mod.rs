//! A box in words: a small TOML file, or flags that say the same.
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
//! line = { rate = "2Gb/s", queue = "harmonize" }      # what the line to this port does besides
//! ```
//!
//! More than two ports without a switch are pairs: `pairs = [["a0", "b0"], ["c0", "d0"]]`.

mod pairs;
mod ports;
mod told;
mod words;

use crate::engine::{Engine, EngineError, Forwarding, MAX_PORTS, Memories, Plan, Tolerance};
use crate::line::Settings;
use crate::memory::MAX_MEMORY;
use crate::switch::AGEING;
use serde::Deserialize;

pub use pairs::PairError;
pub(crate) use pairs::in_pairs;
pub use ports::{PortSpec, PortSpecError};
pub use words::{LineWords, Word, WordError, set, tolerance};

/// A box as it was asked for.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BoxWords {
    /// `cross` or `switch`.
    pub forward: Option<Word>,
    /// Which ports are each other's far end, by their names; where there are two, they are.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// After how long without a frame a switch forgets an address.
    pub ageing: Option<Word>,
    /// Packet memory of each lane, in bytes.
    pub memory: Option<Word>,
    /// What every line does.
    #[serde(default)]
    pub line: LineWords,
    /// The ports.
    #[serde(default, rename = "port")]
    pub ports: Vec<PortWords>,
}

/// A port as it was asked for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PortWords {
    /// What it is: see [`PortSpec`].
    pub open: String,
    /// What the line to it does besides what every line does.
    #[serde(default)]
    pub line: LineWords,
}

/// A box that can be.
#[derive(Clone, Debug)]
pub struct BoxConfig {
    /// Its name, by which its chance differs from that of other boxes; unless it is given one, its
    /// ports.
    pub name: String,
    /// Its ports, and of each the line that leads to it; without a switch each two neighbours are
    /// a pair.
    pub ports: Vec<(PortSpec, Settings)>,
    /// How they are joined.
    pub forwarding: Forwarding,
    /// Packet memory of each lane in bytes; none: as much as its lines need.
    pub memory: Option<u64>,
    /// What share of segments may be late.
    pub tolerance: Tolerance,
}

/// What is wrong with a box.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not TOML, or has what no box has.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A setting means nothing.
    #[error("{place}: {error}")]
    Word {
        /// Where it was given.
        place: String,
        /// What is wrong.
        error: WordError,
    },
    /// A port means nothing.
    #[error(transparent)]
    Port(#[from] PortSpecError),
    /// A number of ports that cannot be joined so.
    #[error(
        "ports given: {0}; a box has two that are each other's far end (forward = \"cross\"), or several such pairs, or is a switch: \
         of 2 to {MAX_PORTS} ports"
    )]
    Ports(usize),
    /// Ports that are no pairs.
    #[error("{0}")]
    Pairs(#[from] PairError),
    /// A name that two ports have.
    #[error("two ports are called {0}: give the interfaces names of their own")]
    Twice(String),
}

impl BoxWords {
    /// From TOML.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Ok(toml::from_str(text)?)
    }

    /// What it means.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
        let mut common = Settings::default();
        self.line.apply(&mut common).map_err(at("every line"))?;
        let mut ports: Vec<(PortSpec, Settings)> = Vec::new();
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
    /// Takes interfaces that somebody uses as well.
    pub fn force(&mut self) {
        for (spec, _) in &mut self.ports {
            spec.force();
        }
    }

    /// Makes packet memory, opens the ports, and starts the box.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(self) -> Result<Engine, EngineError> {
        let Self { name, ports, forwarding, memory, tolerance } = self;
        // Once ports are there packets come, and memory takes seconds.
        let devices: Vec<_> = ports.iter().map(|(spec, _)| spec.is_device()).collect();
        let memories =
            Some(Memories::make(forwarding, &devices, ports.iter().map(|(_, line)| line), memory)?);
        PortSpec::prepare(ports.iter().map(|(spec, _)| spec))?;
        let open =
            |(spec, settings): (PortSpec, Settings)| Ok::<_, EngineError>((spec.open()?, settings));
        let ports = ports.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Engine::start(Plan { name, memories, tolerance, ..Plan::new(ports, forwarding) })
    }
}
