//! Lua, and what it takes to execute a script in it.

use crate::cache::{Cache, MAX_TEXTS, Script, Sha, sha1_hex};
use crate::values::Argument;
use crate::{bits, functions, json, layout, msgpack, patterns, values};
use mlua::chunk::ChunkMode;
use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value,
    VmState,
};
use rustix::time::{ClockId, clock_gettime};
use sprat_resp::{Command, CommandList, Protocol, ReplyWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much of the processor's time a script may take. Meanwhile the server executes nothing else.
pub const TIME_LIMIT: Duration = Duration::from_millis(500);

/// Limit on the memory of all scripts and their values.
pub const MAX_MEMORY: usize = 64 << 20;

/// Memory above which Lua collects its garbage after a script, and not at its own pace.
const MUCH_MEMORY: usize = MAX_MEMORY / 4;

/// The number of instructions of Lua after which the time is looked at. To look costs as much as
/// 100 of them; one that copies a long string may take milliseconds.
const INSTRUCTIONS: u32 = 500;

/// The name of every script, in the texts of errors.
const CHUNK: &str = "@user_script";

/// Calls of functions among which an error's line is looked for.
pub(crate) const MAX_CALLS: usize = 32;

/// What Lua says when it has no memory.
const NO_MEMORY: &[u8] = b"not enough memory";

/// The version of Redis whose scripts these are.
const VERSION: (&str, u32) = ("7.0.15", 0x0007_000f);

/// The names of what a script may have in its first line, after `#!lua flags=`.
const FLAGS: &[&str] =
    &["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// What executes the commands of scripts.
pub trait Host {
    /// Executes a command, and appends its reply, which may be an error.
    ///
    /// # Errors
    /// The script must not go on.
    fn call(
        &mut self,
        command: Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), Stop>;
}

/// A script must not go on: its host knows why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stop;

/// Why a script has ended before its end. What it has done should be undone.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Ended {
    /// Its host has stopped it.
    #[error("stopped")]
    Stopped,
    /// It took longer than [`TIME_LIMIT`].
    #[error(
        "ERR the script took more than {} ms, the limit; it has changed nothing",
        TIME_LIMIT.as_millis()
    )]
    Time,
    /// Its reply has more bytes than there is room for.
    #[error("ERR the reply of the script is longer than {0} bytes; the script has changed nothing")]
    Reply(usize),
}

/// What a script has come to.
enum Ran {
    Returned {
        value: Value,
        speaks_3: bool,
    },
    /// An error of this text, at this line.
    Failed {
        text: Option<LuaString>,
        line: Option<f64>,
    },
}

/// What the program and Lua know of the script at hand.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// Before when the script need not end, in nanoseconds since `began`.
    end: AtomicU64,
    /// The processor's time of the thread when the time was first looked at, in nanoseconds; zero
    /// before that, as for most scripts.
    first: AtomicU64,
    /// Whether it has ended, whatever it does about errors.
    has_ended: AtomicBool,
}

impl Clock {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            end: AtomicU64::new(0),
            first: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn start(&self) {
        self.end.store(self.nanos().saturating_add(limit()), Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        self.has_ended.store(false, Ordering::Relaxed);
    }

    /// Returns whether the script must end. Its time is looked at. While other programs have the
    /// processor, its time stands still.
    pub(crate) fn is_over(&self) -> bool {
        let first = self.first.load(Ordering::Relaxed);
        if first == 0 {
            self.first.store(processor_nanos(), Ordering::Relaxed);
        } else if self.nanos() > self.end.load(Ordering::Relaxed)
            && processor_nanos() - first > limit()
        {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// Returns [`TIME_LIMIT`] in nanoseconds.
fn limit() -> u64 {
    u64::try_from(TIME_LIMIT.as_nanos()).expect("less than a second")
}

/// Returns how much of the processor's time this thread has had, in nanoseconds.
fn processor_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("not negative")
}

/// Returns the error that ends a script. No script handles it.
pub(crate) fn ended() -> Error {
    Error::runtime("the script has ended")
}

/// Keeps and executes scripts.
#[derive(Debug)]
pub struct Engine {
    lua: Lua,
    clock: Arc<Clock>,
    /// What scripts have in place of Lua's global variables.
    environment: Table,
    run: Function,
    cache: Cache,
}

impl Engine {
    /// Creates an engine. `seed` is for the random numbers of scripts.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::build(seed).expect("Lua begins with little memory")
    }

    fn build(seed: u64) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MAX_MEMORY)?;
        let clock = Arc::new(Clock::new());
        let hooked = clock.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        lua.set_global_hook(triggers, move |_, _| match hooked.is_over() {
            true => Err(ended()),
            false => Ok(VmState::Continue),
        })?;
        clock.start();
        let seeded = lua.load("math.randomseed(...)").into_function()?;
        seeded.call::<()>(seed >> 33)?;
        let host = host_functions(&lua, &clock)?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
        let (environment, run) = sandbox.call(host)?;
        Ok(Self { lua, clock, environment, run, cache: Cache::default() })
    }

    /// Returns whether the engine has a script.
    #[must_use]
    pub fn has(&self, sha: &Sha) -> bool {
        self.cache.contains(sha)
    }

    /// Returns whether the commands of a script may only read, by its first line; `None` if the
    /// engine does not have the script.
    pub fn only_reads(&mut self, sha: &Sha) -> Option<bool> {
        self.cache.find(sha, false).map(|script| script.only_reads)
    }

    /// Forgets all scripts.
    pub fn flush(&mut self) {
        self.cache = Cache::default();
        self.collect_garbage();
    }

    /// Compiles a script, unless the engine has it, and returns its name. Unless it `stays`, it may
    /// be forgotten when there are many others.
    ///
    /// # Errors
    /// It is no script, or there are too many; the text is the reply.
    pub fn load(&mut self, text: &[u8], stays: bool) -> Result<Sha, String> {
        let sha = sha1_hex(text);
        if self.cache.find(&sha, stays).is_some() {
            return Ok(sha);
        }
        let (begin, only_reads) = parse_first_line(text)?;
        self.clock.start();
        let chunk = self.lua.load(&text[begin..]).set_name(CHUNK).set_mode(ChunkMode::Text);
        let function = chunk.set_environment(self.environment.clone()).into_function();
        let function = match function {
            Ok(function) => function,
            Err(Error::SyntaxError { message, .. }) => {
                return Err(format!("ERR Error compiling script (new function): {message}"));
            }
            Err(error) => {
                self.collect_garbage();
                return Err(format!("ERR Error compiling script (new function): {error}"));
            }
        };
        let is_one_line = !text.contains(&b'\n');
        let script = Script { function, only_reads, is_one_line };
        match self.cache.add(sha, script, text.len(), stays) {
            Ok(()) => Ok(sha),
            Err(()) => Err(format!(
                "ERR the scripts that were loaded have {MAX_TEXTS} bytes, the limit; remove them \
                 with SCRIPT FLUSH"
            )),
        }
    }

    /// Executes a script, and writes its reply, which may be an error.
    ///
    /// # Errors
    /// It has [ended](Ended) before its end, and there is no reply.
    ///
    /// # Panics
    /// When the engine does not have the script.
    pub fn run(
        &mut self,
        sha: &Sha,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        host: &mut dyn Host,
        reply: &mut ReplyWriter<'_>,
        room: usize,
    ) -> Result<(), Ended> {
        let script = self.cache.find(sha, false).expect("it was loaded");
        let Self { lua, clock, run, .. } = &*self;
        clock.start();
        let mut stopped = false;
        let (mut from_host, mut list) = (Vec::new(), CommandList::default());
        // Without a limit of memory, what the program makes costs less. It is limited anyway.
        lua.set_memory_limit(0).expect("Lua was made here");
        let result = lua.scope(|scope| {
            let keys = values::strings(lua, keys)?;
            let arguments = values::strings(lua, arguments)?;
            let call = scope.create_function_mut(|lua, arguments: MultiValue| {
                lua.set_memory_limit(0)?;
                let value = match parse_call(&arguments, &mut list) {
                    Ok(protocol) => {
                        let command = list.iter().next().expect("it was added");
                        from_host.clear();
                        if host.call(command, protocol, &mut from_host).is_err() {
                            stopped = true;
                            clock.stop();
                            return Err(ended());
                        }
                        values::parse(lua, &from_host)
                    }
                    Err(text) => Ok((false, Value::String(lua.create_string(text)?), false)),
                };
                lua.set_memory_limit(MAX_MEMORY)?;
                value
            })?;
            lua.set_memory_limit(MAX_MEMORY)?;
            let ran: (bool, Value, Option<f64>) =
                run.call((&script.function, call, keys, arguments))?;
            Ok(match ran {
                (true, value, version) => Ran::Returned { value, speaks_3: version == Some(3.0) },
                (false, text, line) => Ran::Failed { text: lua.coerce_string(text)?, line },
            })
        });
        // A command that stops its script leaves no limit.
        lua.set_memory_limit(MAX_MEMORY).expect("Lua was made here");
        let outcome = match result {
            _ if stopped => Err(Ended::Stopped),
            _ if clock.has_ended() => Err(Ended::Time),
            Ok(Ran::Returned { value, speaks_3 }) => {
                values::write(&value, reply, speaks_3, room).map_err(|_| Ended::Reply(room))
            }
            Ok(Ran::Failed { text, line }) => {
                // A call at the end of a script takes the script's place among the calls.
                let line = line.or(script.is_one_line.then_some(1.0));
                let text = text.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
                reply.error(match text.ends_with(NO_MEMORY) {
                    true => error_text(too_much_memory().as_bytes(), sha, line),
                    false => error_text(&text, sha, line),
                });
                Ok(())
            }
            Err(error) => {
                let text = match error {
                    Error::MemoryError(_) => too_much_memory(),
                    error => format!("ERR {error}"),
                };
                reply.error(error_text(text.as_bytes(), sha, None));
                Ok(())
            }
        };
        if self.lua.used_memory() > MUCH_MEMORY {
            self.collect_garbage();
        }
        outcome
    }

    /// Frees what no script uses.
    fn collect_garbage(&self) {
        // Also when the limit is reached: the collection itself needs a little.
        let limited = self.lua.set_memory_limit(0).and_then(|_| self.lua.gc_collect());
        let limited = limited.and_then(|()| self.lua.set_memory_limit(MAX_MEMORY));
        limited.expect("a collection runs nothing that fails");
    }
}

fn too_much_memory() -> String {
    format!("ERR the script needs more memory than {MAX_MEMORY} bytes, the limit of all scripts")
}

/// Returns the reply to a script that has failed.
fn error_text(text: &[u8], sha: &Sha, line: Option<f64>) -> Vec<u8> {
    let mut text = text.to_vec();
    text.extend_from_slice(b" script: ");
    text.extend_from_slice(sha);
    if let Some(line) = line {
        text.extend_from_slice(format!(", on {CHUNK}:{line}.").as_bytes());
    }
    text
}

/// Returns where Lua begins in a script, and whether its commands may only read, as its first line
/// says: `#!lua flags=no-writes`.
fn parse_first_line(text: &[u8]) -> Result<(usize, bool), String> {
    if !text.starts_with(b"#!") {
        return Ok((0, false));
    }
    let end = text.iter().position(|byte| *byte == b'\n');
    let Some(end) = end else { return Err("ERR Invalid script shebang".into()) };
    let line = String::from_utf8_lossy(&text[..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    let mut only_reads = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}"));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(format!("ERR Unexpected flag in script shebang: {flag}"));
            }
            only_reads |= flag == "no-writes";
        }
    }
    Ok((end, only_reads))
}

/// Makes the arguments of a call the command of `list`, and returns the version of the protocol for
/// its reply.
///
/// # Errors
/// There is no command; the text is the reply.
fn parse_call(arguments: &MultiValue, list: &mut CommandList) -> Result<Protocol, &'static str> {
    let mut arguments = arguments.iter();
    let version = arguments.next().and_then(values::number);
    let protocol = if version == Some(3.0) { Protocol::Resp3 } else { Protocol::Resp2 };
    if arguments.len() == 0 {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let parts = arguments.map(Argument::of).collect::<Option<Vec<_>>>();
    let parts = parts.ok_or("ERR Lua redis lib command arguments must be strings or integers")?;
    list.clear();
    list.push(parts.iter().map(Argument::bytes));
    Ok(protocol)
}

/// Returns the functions of the program that the sandbox uses.
fn host_functions(lua: &Lua, clock: &Arc<Clock>) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.raw_set("version", VERSION.0)?;
    host.raw_set("version_number", VERSION.1)?;
    let asked = clock.clone();
    let has_ended = lua.create_function(move |_, ()| Ok(asked.has_ended()))?;
    host.raw_set("has_ended", has_ended)?;
    host.raw_set("line", lua.create_function(|lua, ()| Ok(line_of_script(lua)))?)?;
    let hash =
        lua.create_function(|lua, text: LuaString| lua.create_string(sha1_hex(&text.as_bytes())))?;
    host.raw_set("sha1hex", hash)?;
    let log = lua.create_function(|_, (level, text): (f64, LuaString)| {
        let text = text.to_string_lossy();
        match level {
            3.0 => tracing::warn!("script: {text}"),
            2.0 => tracing::info!("script: {text}"),
            _ => tracing::debug!("script: {text}"),
        }
        Ok(())
    })?;
    host.raw_set("log", log)?;
    functions::add(lua, &host, clock, patterns::STEPS_OF)?;
    let libraries = lua.create_table()?;
    for (name, all) in [
        ("bit", bits::FUNCTIONS),
        ("cjson", json::FUNCTIONS),
        ("cmsgpack", msgpack::FUNCTIONS),
        ("string", patterns::FUNCTIONS),
        ("struct", layout::FUNCTIONS),
    ] {
        let library = lua.create_table()?;
        functions::add(lua, &library, clock, all)?;
        libraries.raw_set(name, library)?;
    }
    host.raw_set("null", Value::NULL)?;
    host.raw_set("libraries", libraries)?;
    Ok(host)
}

/// Returns the line of the script at which Lua is.
fn line_of_script(lua: &Lua) -> Option<usize> {
    (1..MAX_CALLS).find_map(|level| {
        let found = lua.inspect_stack(level, |debug| {
            let is_script = debug.source().source.is_some_and(|source| source == CHUNK);
            debug.current_line().filter(|_| is_script)
        });
        found.flatten()
    })
}
