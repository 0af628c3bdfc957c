//! Reads plugs that measure power: Shelly plugs from the second generation on, and plugs with
//! Tasmota. They use plain HTTP, so they belong in a network of their own.

use crate::login::Login;
use crate::web::{Trusted, Web};
use crate::{Cause, Reading, Watts, plausible};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Parses the answer of a Shelly's `Switch.GetStatus`. Negative power counts as positive.
///
/// # Errors
/// [`Cause::Absent`] if the answer has no number `apower`, and [`Cause::Nonsense`] if the number is
/// implausibly large.
pub fn shelly(value: &Value) -> Result<Watts, Cause> {
    let watts = value.get("apower").and_then(Value::as_f64);
    // A plug that is mounted the other way round reports negative power.
    plausible(
        watts
            .ok_or_else(|| Cause::Absent("this switch does not measure (no `apower`)".to_owned()))?
            .abs(),
    )
}

/// Parses the answer of Tasmota's `Status 8`. The answer has one number, or one for each of several
/// phases or sockets; these are added up.
///
/// # Errors
/// [`Cause::Absent`] if the answer has no `ENERGY` whose `Power` is a number or a list of numbers,
/// and [`Cause::Nonsense`] if the sum is negative or implausibly large.
pub fn tasmota(value: &Value) -> Result<Watts, Cause> {
    let power = value.pointer("/StatusSNS/ENERGY/Power");
    let watts = match power {
        Some(Value::Array(all)) => all.iter().map(Value::as_f64).sum::<Option<f64>>(),
        Some(one) => one.as_f64(),
        None => None,
    };
    plausible(
        watts
            .ok_or_else(|| Cause::Absent("this plug does not measure (no `ENERGY`)".to_owned()))?,
    )
}

/// A plug.
#[derive(Debug)]
pub(crate) struct Plug {
    address: String,
    model: Model,
    web: Web,
}

#[derive(Debug)]
pub(crate) enum Model {
    Shelly { switch: u8 },
    Tasmota { login: Option<PathBuf> },
}

impl Plug {
    pub(crate) fn new(address: String, model: Model) -> Self {
        Self { address, model, web: Web::new(Trusted::default()) }
    }

    pub(crate) fn location(&self) -> String {
        self.address.clone()
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Cause> {
        let (address, until) = (&self.address, Instant::now() + time);
        let watts = match &self.model {
            Model::Shelly { switch } => shelly(&self.web.get(
                &format!("http://{address}/rpc/Switch.GetStatus?id={switch}"),
                None,
                until,
            )?),
            Model::Tasmota { login } => {
                let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let credentials = match login.as_deref().map(Login::read).transpose()? {
                    Some(login) => format!(
                        "user={}&password={}&",
                        escaped(&login.user),
                        escaped(&login.password)
                    ),
                    None => String::new(),
                };
                let value = self.web.get(
                    &format!("http://{address}/cm?{credentials}cmnd=Status%208"),
                    None,
                    until,
                )?;
                // Without the password Tasmota answers successfully, but sends only a warning.
                if value.get("WARNING").is_some() {
                    return Err(Cause::Denied("it requires a password".to_owned()));
                }
                tasmota(&value)
            }
        }?;
        Ok(Reading::Watts(watts))
    }
}
