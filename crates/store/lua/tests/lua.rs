//! Tests scripts without a server: patterns beside Lua's own, and what an engine keeps.

use proptest::prelude::*;
use sprat_lua::{Ended, Engine, Host, MAX_CACHED, Sha, Stop};
use sprat_resp::{Command, Protocol, ReplyWriter};

/// Replies to every command with its parts, or stops the script.
struct Parts {
    stops_at: Option<&'static str>,
}

impl Host for Parts {
    fn call(
        &mut self,
        command: Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        if self.stops_at.is_some_and(|name| command.name() == name.as_bytes()) {
            return Err(Stop);
        }
        let mut writer = ReplyWriter::new(reply, protocol);
        writer.array(command.len());
        command.iter().for_each(|part| writer.bulk(part));
        Ok(())
    }
}

/// Returns the reply to a script.
fn run(engine: &mut Engine, text: &str, arguments: &[&[u8]]) -> Result<String, Ended> {
    let sha = engine.load(text.as_bytes(), false).unwrap();
    let mut reply = Vec::new();
    let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp2);
    let mut host = Parts { stops_at: Some("stop") };
    engine.run(&sha, &[], arguments, &mut host, &mut writer, 1 << 20)?;
    Ok(reply.escape_ascii().to_string())
}

#[test]
fn arguments_and_replies_are_any_bytes() {
    let mut engine = Engine::new(1);
    let reply = run(&mut engine, "return redis.call('x', ARGV[1], 7, 0.5, 1e20)", &[b"\0\xff\r\n"]);
    assert_eq!(
        reply.unwrap(),
        "*5\\r\\n$1\\r\\nx\\r\\n$4\\r\\n\\x00\\xff\\r\\n\\r\\n$1\\r\\n7\\r\\n$3\\r\\n0.5\\r\\n\
         $5\\r\\n1e+20\\r\\n"
    );
}

#[test]
fn a_script_that_its_host_stops_handles_nothing() {
    let mut engine = Engine::new(1);
    for text in [
        "redis.call('stop') return 1",
        "redis.pcall('stop') return 1",
        "pcall(redis.call, 'stop') return 1",
        "pcall(function() redis.pcall('stop') end) return 1",
        "xpcall(function() redis.call('stop') end, function() return 1 end) return 1",
        "coroutine.resume(coroutine.create(function() redis.call('stop') end)) return 1",
        "string.gsub('a', 'a', function() redis.call('stop') end) return 1",
    ] {
        assert_eq!(run(&mut engine, text, &[]), Err(Ended::Stopped), "{text}");
    }
    assert_eq!(run(&mut engine, "return 1", &[]).unwrap(), ":1\\r\\n");
}

#[test]
fn scripts_that_were_loaded_stay_and_others_are_forgotten() {
    let mut engine = Engine::new(1);
    let loaded = engine.load(b"return 'loaded'", true).unwrap();
    let text = |number: usize| format!("return {number}").into_bytes();
    let first: Sha = engine.load(&text(0), false).unwrap();
    let second = engine.load(&text(1), false).unwrap();
    for number in 2..MAX_CACHED {
        engine.load(&text(number), false).unwrap();
    }
    assert!(engine.has(&first) && engine.has(&second));
    // The one that was used last stays.
    engine.load(&text(0), false).unwrap();
    engine.load(&text(MAX_CACHED), false).unwrap();
    assert!(engine.has(&first) && !engine.has(&second) && engine.has(&loaded));
    engine.flush();
    assert!(!engine.has(&loaded));
}

/// Tables within tables are followed on the stack of the thread.
#[test]
fn libraries_follow_tables_only_so_far() {
    let mut engine = Engine::new(1);
    for (text, expected) in [
        ("local t={} for i=1,999 do t={t} end return #cjson.encode(t)", ":2000\\r\\n"),
        (
            "local j=string.rep('[',1000)..string.rep(']',1000) \
             return #cjson.encode(cjson.decode(j))",
            ":2000\\r\\n",
        ),
        ("return type(cmsgpack.unpack(string.rep('\\145',1000)..'\\1'))", "$5\\r\\ntable\\r\\n"),
        ("return (pcall(cmsgpack.unpack,string.rep('\\145',1500)..'\\1'))", "$-1\\r\\n"),
        ("return (pcall(string.find,string.rep('a',300),string.rep('a?',300)))", "$-1\\r\\n"),
    ] {
        assert_eq!(run(&mut engine, text, &[]).unwrap(), expected, "{text}");
    }
}

/// Returns what a function of strings returns, or its error, as text.
const CALL: &str = "
    local function shown(...)
        local parts = {}
        for at = 1, select('#', ...) do
            parts[at] = tostring((select(at, ...)))
        end
        return table.concat(parts, '|')
    end
    local text, pattern, more, what = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
    if what == 'gmatch' then
        return shown(pcall(function()
            local all = {}
            for one, two in string.gmatch(text, pattern) do
                all[#all + 1] = tostring(one) .. ',' .. tostring(two)
            end
            return table.concat(all, ';')
        end))
    elseif what == 'function' then
        return shown(pcall(string.gsub, text, pattern, function(one, two)
            if one ~= 'b' then
                return '<' .. one .. (two or '') .. '>'
            end
        end))
    elseif what == 'table' then
        return shown(pcall(string.gsub, text, pattern, { a = 'x', b = 2, [''] = '-' }, 3))
    elseif what == 'find' then
        return shown(pcall(string.find, text, pattern, tonumber(more)))
    elseif what == 'match' then
        return shown(pcall(string.match, text, pattern, tonumber(more)))
    end
    return shown(pcall(string.gsub, text, pattern, more))";

/// Returns what Lua's own functions make of it.
fn expected(lua: &mlua::Lua, arguments: &[&[u8]]) -> String {
    let strings = arguments.iter().map(|text| lua.create_string(text).unwrap());
    lua.globals().set("ARGV", lua.create_sequence_from(strings).unwrap()).unwrap();
    let result: mlua::LuaString = lua.load(CALL).set_name("@user_script").eval().unwrap();
    result.as_bytes().escape_ascii().to_string()
}

/// The parts of patterns. With these, even those that repeat each other end soon on short texts.
const PARTS: &[&str] = &[
    "a", "b", ".", "%a", "%d", "%W", "%z", "[ab]", "[^a]", "[a-c]", "[%d_]", "[]]", "[^]]", "[a-]",
    "*", "+", "-", "?", "(", ")", "()", "%1", "%2", "%b()", "%bab", "%f[%w]", "%f[%W]", "^", "$",
    "%", "%%", "%.", "[", "]", "[%", "%b", "%f", "x",
];

fn pattern() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PARTS), 0..7).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn patterns_match_as_in_lua(
        text in "[ab(){}1_ .x\\x00]{0,10}",
        pattern in pattern(),
        more in prop::sample::select(vec!["%1", "<%0>", "-3", "2", "%2%%", "x%", "0", "100", ""]),
        what in prop::sample::select(vec!["find", "match", "gmatch", "function", "table", "gsub"]),
    ) {
        thread_local! {
            static BOTH: std::cell::RefCell<(Engine, mlua::Lua)> =
                std::cell::RefCell::new((Engine::new(1), mlua::Lua::new()));
        }
        BOTH.with_borrow_mut(|(engine, lua)| {
            let arguments = [text.as_bytes(), pattern.as_bytes(), more.as_bytes(), what.as_bytes()];
            let ours = run(engine, CALL, &arguments).unwrap();
            let theirs = expected(lua, &arguments);
            let body = ours.split_once("\\r\\n").map(|(_, body)| body.trim_end_matches("\\r\\n"));
            prop_assert_eq!(body.unwrap(), theirs);
            Ok(())
        })?;
    }
}
