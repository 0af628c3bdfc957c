//! Plugs that measure what goes through them: Shelly's, of the second generation and later, and
//! those with Tasmota. Plain HTTP, in a network of their own.

use crate::login::Login;
use crate::web::{Trusted, Web};
use crate::{Reading, Trouble, Watts, believed};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a Shelly's `Switch.GetStatus` tells.
///
/// # Errors
/// There is no power in it.
pub fn shelly(value: &Value) -> Result<Watts, Trouble> {
    let watts = value.get("apower").and_then(Value::as_f64);
    // It tells what flows back with a minus: a plug that was mounted the other way round.
    believed(
        watts
            .ok_or_else(|| {
                Trouble::Absent("this switch does not measure (no `apower`)".to_owned())
            })?
            .abs(),
    )
}

/// What Tasmota's `Status 8` tells: one number, or one for each of several phases or sockets, which
/// are added up.
///
/// # Errors
/// There is no power in it.
pub fn tasmota(value: &Value) -> Result<Watts, Trouble> {
    let power = value.pointer("/StatusSNS/ENERGY/Power");
    let watts = match power {
        Some(Value::Array(all)) => all.iter().map(Value::as_f64).sum::<Option<f64>>(),
        Some(one) => one.as_f64(),
        None => None,
    };
    believed(
        watts.ok_or_else(|| {
            Trouble::Absent("this plug does not measure (no `ENERGY`)".to_owned())
        })?,
    )
}

/// A plug.
#[derive(Debug)]
pub(crate) struct Plug {
    address: String,
    what: What,
    web: Web,
}

#[derive(Debug)]
pub(crate) enum What {
    Shelly { switch: u8 },
    Tasmota { login: Option<PathBuf> },
}

impl Plug {
    pub(crate) fn new(address: String, what: What) -> Self {
        Self { address, what, web: Web::new(Trusted::default()) }
    }

    pub(crate) fn told(&self) -> String {
        self.address.clone()
    }

    pub(crate) fn read(&mut self, time: Duration) -> Result<Reading, Trouble> {
        let (address, until) = (&self.address, Instant::now() + time);
        let watts = match &self.what {
            What::Shelly { switch } => shelly(&self.web.get(
                &format!("http://{address}/rpc/Switch.GetStatus?id={switch}"),
                None,
                until,
            )?),
            What::Tasmota { login } => {
                let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let who = match login.as_deref().map(Login::read).transpose()? {
                    Some(login) => format!(
                        "user={}&password={}&",
                        escaped(&login.user),
                        escaped(&login.password)
                    ),
                    None => String::new(),
                };
                let value = self.web.get(
                    &format!("http://{address}/cm?{who}cmnd=Status%208"),
                    None,
                    until,
                )?;
                // Without the password it answers well, and says only that.
                if value.get("WARNING").is_some() {
                    return Err(Trouble::Denied("it wants a password".to_owned()));
                }
                tasmota(&value)
            }
        }?;
        Ok(Reading::Watts(watts))
    }
}
