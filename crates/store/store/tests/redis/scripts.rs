//! Scripts of Redis clients, beside Redis, and where they end.

use super::client::{RedisClient, RedisProcess, Reply, encode};
use super::transactions::{array, transact};
use super::{Durability, Served, error, options};
use std::time::{Duration, Instant};

/// Scripts without keys whose replies are those of Redis.
const SCRIPTS: &[&str] = &[
    // Values.
    "return 3.99",
    "return -3.99",
    "return {1,2,nil,4}",
    "return {1,{2,{3}},'x',{ok='y'},{err='z'}}",
    "return {ok='fine'}",
    "return {err='bad'}",
    "return {err='ERR bad thing'}",
    "return {err='a\\r\\nb'}",
    "return {err=1}",
    "return nil",
    "return true",
    "return false",
    "return {true,false,1}",
    "return 1e20",
    "return 0/0",
    "return function() end",
    "return redis",
    "local t={} for i=1,100 do t[i]=i end return select('#',pcall(unpack,t))",
    "return 'a','b'",
    "return",
    "",
    "local a={} a.a=a return a",
    "return {double=3.5}",
    "return {map={a=1}}",
    "return {set={a=true}}",
    "return {verbatim_string={format='txt',string='hi'}}",
    "redis.setresp(3) return {true,false,nil}",
    "return {tostring(1e15),tostring(123456789012345678),tostring(0.1)}",
    "return {tostring(1/0),tostring(2^53)}",
    // Errors.
    "x = ",
    "return foo",
    "foo=1",
    "string.x=1",
    "redis.call=1",
    "_G.x=1",
    "rawset(_G,'x',1)",
    "setmetatable(_G,{})",
    "return rawget(_G,'nothing')",
    "return #{pairs(redis)}",
    "error('boom')",
    "error({err='X boom'})",
    "local a=nil; return a.b",
    "local f=function()\n error('deep')\n end\n f()",
    "local ok,e=pcall(error,'x') return e",
    "return {pcall(error,{err='My text'})}",
    "return redis.error_reply('x y')",
    "return redis.error_reply('-X y')",
    "return redis.error_reply('')",
    "return redis.error_reply('ERR')",
    "return redis.error_reply()",
    "return redis.error_reply('my err\\nx')",
    "return redis.status_reply('x')",
    "return redis.status_reply(1)",
    "return redis.sha1hex('abc')",
    "return redis.sha1hex()",
    "redis.setresp(4)",
    "return redis.log()",
    "return redis.log(1,'x')",
    "return redis.replicate_commands()",
    "return redis.breakpoint()",
    "return os.time()",
    "return string.rep('x',3,4)",
    "return loadstring('return 7')()",
    "return loadstring(string.dump(function() return 7 end))()",
    "local f,e=loadstring('x = ') return e",
    "return load(function() return nil end) ~= nil",
    "local n=0 for k in pairs(string) do n=n+1 end return n",
    // Commands.
    "return redis.call('get')",
    "return redis.call('nosuch')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('set','a',{})",
    "return redis.call('set','a',1.5)",
    "return redis.call('get','a')",
    "return redis.call('incr','a')",
    "return redis.pcall('incr','a')",
    "local r=redis.pcall('incr','a') return r.err",
    "return pcall(redis.call,'incr','a')",
    "local ok,e=pcall(redis.call,'incr','a') return e",
    "local ok,e=pcall(redis.call,'incr','a') return type(e)",
    "redis.call('set','a',1) redis.call('lpush','a','x') redis.call('set','a',2)",
    "return redis.call('get','a')",
    "redis.call('set','a',1e15) return redis.call('get','a')",
    "redis.call('set','a',123456789012345678) return redis.call('get','a')",
    "redis.call('set','a',1e100) return redis.call('get','a')",
    "redis.call('set','a',0.1) return redis.call('get','a')",
    "return {redis.call('get','none')==false,type(redis.call('type','a'))}",
    "return redis.call('type','a').ok",
    "return redis.call('subscribe','a')",
    "return redis.call('multi')",
    "return redis.call('blpop','none',0)",
    "return redis.call('eval','return 1',0)",
    "return redis.call('script','flush')",
    "return redis.call('auth','x')",
    "return redis.call('client','id')",
    "return redis.call('watch','x')",
    "return redis.call('hello')",
    "return redis.call('quit')",
    "return redis.call('config','get','maxclients')",
    "return redis.call('reset')",
    "return redis.call('wait',0,0)",
    "return redis.call('publish','a','b')",
    "redis.call('select',1) return redis.call('get','a')",
    "return redis.call('get','a')",
    "return redis.call('zadd','z',1.5,'a')",
    "return redis.call('zscore','z','a')",
    "redis.setresp(3) return redis.call('zscore','z','a').double",
    "redis.setresp(3) redis.call('hset','h','a','b') return redis.call('hgetall','h').map.a",
    "redis.setresp(3) return redis.call('hgetall','h')",
    "return redis.call('hgetall','h')",
    "redis.setresp(3) redis.call('sadd','s','a') return redis.call('smembers','s')",
    "redis.setresp(3) return tostring(redis.call('get','none'))",
    "redis.call('rpush','l','a','b','c') return redis.call('lrange','l',0,-1)",
    "return redis.call('lmove','l','l','left','right')",
    "#!lua flags=no-writes\nlocal r=redis.call('set','a',1) return r",
    "#!lua flags=no-writes\nreturn redis.call('exists','a')",
    "#!lua\nreturn 1",
    "#!lua flags=bad\nreturn 1",
    "#!js\nreturn 1",
    "#!lua name=x\nreturn 1",
    "#!lua",
];

/// Scripts that use the libraries of Redis, whose replies are those of Redis.
const LIBRARIES: &[&str] = &[
    "return cjson.encode({1,2,3})",
    "return cjson.encode({})",
    "return cjson.encode({a=1})",
    "return cjson.encode({[1]=1,[3]=3})",
    "return cjson.encode({[1]=1,[20]=3})",
    "return cjson.encode('a/b\"\\\\\\n\\127\\1\\255')",
    "return cjson.encode(1.5)",
    "return cjson.encode(1e20)",
    "return cjson.encode(0/0)",
    "return cjson.encode(1/0)",
    "return cjson.encode(nil)",
    "return cjson.encode(cjson.null)",
    "return cjson.encode(function() end)",
    "return cjson.encode({[true]=1})",
    "return cjson.encode({[1.5]=1})",
    "return cjson.encode({[-1]=1})",
    "return cjson.encode()",
    "return cjson.encode(1,2)",
    "local t={} for i=1,1001 do t={t} end return cjson.encode(t)",
    "return cjson.encode(123456789012345678)",
    "return cjson.encode(true)",
    "return cjson.decode('[1,2,{\"a\":null}]')",
    "return cjson.decode('{\"a\":1.5}').a",
    "return tostring(cjson.decode('[null]')[1])",
    "return cjson.decode('')",
    "return cjson.decode('{')",
    "return cjson.decode('[1,]')",
    "return cjson.decode('nan')",
    "return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\"')",
    "return cjson.decode('\"\\\\ud800\"')",
    "return cjson.decode('1 2')",
    "return cjson.decode('01')",
    "return cjson.decode('-0.5e3')",
    "return cjson.decode('tru')",
    "return cjson.decode()",
    "return cjson.decode({})",
    "return tostring(cjson.decode('9223372036854775807'))",
    "return cjson.decode(12)",
    "return cjson.decode('\"a\\tb\"')",
    "return cjson.decode('[' .. string.rep('[',1001))",
    "return cmsgpack.pack(1)",
    "return cmsgpack.unpack(cmsgpack.pack({1,2,'a',{b=true}}))",
    "return {cmsgpack.unpack(cmsgpack.pack(1,'x',nil,2.5))}",
    "return cmsgpack.pack()",
    "return cmsgpack.unpack('')",
    "return cmsgpack.unpack('\\255')",
    "return cmsgpack.unpack('\\147\\1')",
    "return cmsgpack.unpack('\\193')",
    "return {cmsgpack.unpack_one(cmsgpack.pack(5,6),0)}",
    "return {cmsgpack.unpack_one(cmsgpack.pack(5,6),1)}",
    "return {cmsgpack.unpack_one(cmsgpack.pack(5,6),2)}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(5,6,7),2)}",
    "return cmsgpack.unpack()",
    "return cmsgpack.pack(function() end)",
    "local r='' for _,v in ipairs({0,1,127,128,255,256,65535,65536,2^32-1,2^32,2^53,-1,-32,\
     -33,-128,-129,-32768,-32769,-2^31,-2^31-1,1.5,0.1,1e300,true,'a',string.rep('x',31),\
     string.rep('x',32)}) do local p=cmsgpack.pack(v) for i=1,math.min(#p,10) \
     do r=r..string.format('%02x',p:byte(i)) end r=r..' ' end return r",
    "local p=cmsgpack.pack({}) return p:byte(1)",
    "local p=cmsgpack.pack({a=1}) return p:byte(1)",
    "local p=cmsgpack.pack({1,nil,3}) return p:byte(1)",
    "local p=cmsgpack.pack({1,2,a=1}) return p:byte(1)",
    "local p=cmsgpack.pack(nil) return p:byte(1)",
    "local t={} for i=1,20 do t={t} end return #cmsgpack.pack(t)",
    "return {bit.tobit(0xffffffff),bit.tohex(255),bit.tohex(255,-4),bit.bnot(0),bit.band(7,\
     3,2),bit.bor(1,2,4),bit.bxor(5,1),bit.lshift(1,31),bit.rshift(-1,28),bit.arshift(-8,1),\
     bit.rol(1,33),bit.ror(1,1),bit.bswap(0x12345678)}",
    "return bit.band()",
    "return bit.tobit('x')",
    "return bit.tohex(1,0)",
    "return bit.tobit(2^40+1.5)",
    "return bit.tohex(-1,12)",
    "return struct.pack('<I4',1)",
    "return struct.size('<I4hb')",
    "return {struct.unpack('<I4>h',struct.pack('<I4>h',258,-2))}",
    "return {struct.unpack('s',struct.pack('s','abc'))}",
    "return {struct.unpack('Bc0',struct.pack('Bc0',3,'abc'))}",
    "return struct.size('!8bd')",
    "return struct.size('bd')",
    "return struct.size('s')",
    "return struct.size('c5x')",
    "return struct.pack('y',1)",
    "return struct.unpack('I4','ab')",
    "return struct.pack('I40',1)",
    "return {struct.unpack('b',struct.pack('b',-1),1)}",
    "return {struct.unpack('b','abc',3)}",
    "return struct.pack('>d',1.5)",
    "return struct.size('!3b')",
    "return struct.pack('c3','ab')",
    "return {struct.unpack('>f',struct.pack('>f',0.5))}",
    "return struct.size('iIlLhHbBTfd')",
    "return struct.size('!iIlLhHbBTfd')",
    "return {struct.unpack('b','a',5)}",
    "return struct.pack('<i8',-2)",
    "return {struct.unpack('<i8',struct.pack('<i8',-2))}",
    "return {struct.unpack('<I8',struct.pack('<i8',-2))}",
    "return struct.size('<!4bi')",
    "return {struct.unpack('s','abc')}",
];

/// Commands around scripts whose replies are those of Redis.
const COMMANDS: &[&[&str]] = &[
    &["EVAL", "return 1", "x"],
    &["EVAL", "return 1", "-1"],
    &["EVAL", "return 1", "2", "a"],
    &["EVAL", "return {KEYS,ARGV}", "1", "a", "b", "c"],
    &["EVAL", "KEYS[1]='changed' return KEYS", "1", "a"],
    &["EVAL", "return KEYS", "1", "a"],
    &["EVALSHA", "abc", "0"],
    &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
    &["SCRIPT", "LOAD", "return 1"],
    &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
    &["EVALSHA", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", "0"],
    &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"],
    &["SCRIPT", "LOAD", "x ="],
    &["SCRIPT", "KILL"],
    &["SCRIPT", "FLUSH", "x"],
    &["SCRIPT", "FLUSH", "async"],
    &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"],
    &["SCRIPT", "nosuch"],
    &["SCRIPT", "LOAD"],
    &["EVAL_RO", "return redis.call('set','a',1)", "0"],
    &["EVAL_RO", "return redis.call('exists','a')", "0"],
    &["COMMAND", "GETKEYS", "EVAL", "x", "2", "a", "b", "c"],
    &["COMMAND", "GETKEYS", "EVAL", "x", "0"],
];

#[test]
fn scripts_get_the_replies_of_redis() {
    let Some(redis) = RedisProcess::start() else {
        return sprat_testing::skip("redis-server is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut ours, mut theirs) = (served.client(), RedisClient::connect(redis.address));
    let mut differences = Vec::new();
    for version in ["2", "3"] {
        for client in [&mut ours, &mut theirs] {
            assert_eq!(client.ask(&["HELLO", version]).elements().len(), 14);
            assert_eq!(client.say("FLUSHALL"), Reply::ok());
        }
        let scripts = SCRIPTS.iter().chain(LIBRARIES).map(|script| vec!["EVAL", *script, "0"]);
        for command in scripts.chain(COMMANDS.iter().map(|command| command.to_vec())) {
            let (our, their) = (ours.ask(&command), theirs.ask(&command));
            if our != their {
                differences.push(format!("{command:?}: {our:?} here, {their:?} from Redis"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    served.server.stop().unwrap();
}

/// Evaluates a script without keys.
fn eval(client: &mut RedisClient, script: &str) -> Reply {
    client.ask(&["EVAL", script, "0"])
}

#[test]
fn a_script_that_does_not_end_is_ended_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    for endless in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local loop=coroutine.wrap(function() while true do end end) while true do loop() end",
        "local loop=function() while true do end end \
         while true do coroutine.resume(coroutine.create(loop)) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) \
         end",
        "return string.find(string.rep('a',40),string.rep('a?',40)..string.rep('a',40))",
        "return string.gsub(string.rep('a',40),string.rep('a-',40)..'b','')",
        "while true do redis.call('INCR','n') end",
        "while true do redis.pcall('GET') end",
        "local s=string.rep('x',5e6) while true do local t=s..s end",
    ] {
        let mut client = served.client();
        assert_eq!(client.ask(&["SET", "kept", "1"]), Reply::ok());
        let script = format!("redis.call('SET','kept','2') {endless}");
        let reply = eval(&mut client, &script);
        assert!(error(&reply).contains("the script took more than 500 ms"), "{reply:?}");
        assert_eq!(served.client().say("GET kept"), Reply::bulk("1"), "{endless}");
        assert_eq!(served.client().say("EXISTS n"), Reply::Integer(0));
        // Others go on, with scripts, too.
        assert_eq!(eval(&mut served.client(), "return 1"), Reply::Integer(1));
    }
    served.server.stop().unwrap();
}

/// A client whose scripts do not end waits after each, so that others have most of the time.
#[test]
fn a_client_whose_script_took_too_long_waits() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let (mut client, mut other) = (served.client(), served.client());
    let began = Instant::now();
    let endless = ["EVAL", "while true do end", "0"].map(|part| part.as_bytes().to_vec()).to_vec();
    let ping = vec![b"PING".to_vec()];
    client.send(&[encode(&endless), encode(&ping)].concat());
    assert!(error(&client.reply().unwrap()).contains("took more"));
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
    assert_eq!(client.reply(), Some(Reply::Simple("PONG".into())));
    assert!(began.elapsed() >= Duration::from_secs(5), "it waited");
    served.server.stop().unwrap();
}

#[test]
fn what_is_too_much_for_a_script_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    for (script, text) in [
        ("return string.rep('x',1e9)", "memory"),
        ("local t={} while true do t[#t+1]=string.rep('x',1e5)..#t end", "memory"),
        ("local s='x' while true do s=s..s end", "memory"),
        ("local function f() return f()+1 end return f()", "stack overflow"),
        ("local t={} for i=1,40 do t={t,t} end return t", "reply of the script is longer"),
        ("local t={} t[1]=t return #t", ""),
        (
            // With this memory a segment has 2 MiB.
            "local s=string.rep('x',2^20-100) redis.call('SET','a',s) redis.call('SET','b',s)",
            "at once; the limit is",
        ),
    ] {
        let reply = eval(&mut client, script);
        match text {
            "" => assert_eq!(reply, Reply::Integer(1), "{script}"),
            _ => assert!(error(&reply).contains(text), "{script}: {reply:?}"),
        }
        assert_eq!(client.say("EXISTS a b"), Reply::Integer(0));
    }
    // Texts that were loaded are limited; those that were only executed are forgotten.
    let mut refused = None;
    for number in 0..20 {
        let text = format!("return '{}{number}'", "x".repeat(1_000_000));
        match client.ask(&["SCRIPT", "LOAD", &text]) {
            Reply::Bulk(_) => {}
            reply => refused = Some(reply),
        }
    }
    assert!(error(&refused.expect("a limit")).contains("SCRIPT FLUSH"));
    assert_eq!(client.say("SCRIPT FLUSH"), Reply::ok());
    let first = client.ask(&["SCRIPT", "LOAD", "return 'loaded'"]);
    let Reply::Bulk(loaded) = first else { panic!("{first:?}") };
    for number in 0..600 {
        assert_eq!(eval(&mut client, &format!("return {number}")), Reply::Integer(number));
    }
    assert_eq!(client.ask(&[b"EVALSHA", &loaded[..], b"0"]), Reply::bulk("loaded"));
    served.server.stop().unwrap();
}

#[test]
fn scripts_change_everything_or_nothing_also_in_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), Durability::Sync);
    let served = Served::start(&options);
    let mut client = served.client();
    let moves = "local n=redis.call('DECRBY',KEYS[1],ARGV[1]) redis.call('INCRBY',KEYS[2],ARGV[1]) \
                 redis.call('HSET','log',n,ARGV[1]) return n";
    assert_eq!(client.ask(&["EVAL", moves, "2", "a", "b", "5"]), Reply::Integer(-5));
    assert_eq!(client.say("MULTI"), Reply::ok());
    for command in [
        &["SET", "c", "1"][..],
        &["EVAL", moves, "2", "a", "b", "7"],
        // A script that fails leaves what it has done before, as in Redis.
        &["EVAL", "redis.call('SET','c','2') redis.call('LPUSH','c','x')", "0"],
        &["EVAL", "redis.call('SET','c','3') return redis.call('GET','c')", "0"],
        &["GET", "b"],
    ] {
        assert_eq!(client.ask(command), Reply::Simple("QUEUED".into()));
    }
    let replies = client.say("EXEC").elements();
    assert_eq!(replies[1], Reply::Integer(-12));
    assert!(error(&replies[2]).starts_with("WRONGTYPE"), "{:?}", replies[2]);
    assert_eq!(replies[3..], [Reply::bulk("3"), Reply::bulk("12")]);
    // One that is ended leaves nothing, and the others count.
    let replies = transact(&mut client, &["SET d 1"]);
    assert_eq!(replies, array(&[Reply::ok()]));
    served.server.stop().unwrap();
    let served = Served::start(&options);
    let mut client = served.client();
    let values = ["-12", "12", "3", "1"].map(Reply::bulk);
    assert_eq!(client.say("MGET a b c d"), array(&values));
    assert_eq!(client.say("HLEN log"), Reply::Integer(2));
    // Scripts are not kept, as in Redis.
    assert_eq!(client.say("EVALSHA 0000000000000000000000000000000000000000 0"), {
        Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into())
    });
    served.server.stop().unwrap();
}

/// What one script does to the tables that all share, no other one finds.
#[test]
fn scripts_cannot_reach_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(&options(dir.path(), Durability::None));
    let mut client = served.client();
    for attempt in [
        "string.rep = nil",
        "rawset(string, 'rep', nil)",
        "table.insert(redis, 'x')",
        "table.sort(redis)",
        "table.remove(redis)",
        "setmetatable(string, {})",
        "getmetatable('').__index = nil",
        "getmetatable(string).__index = nil",
        "for _, real in pairs({pairs(string)}) do real.rep = nil end",
        "local _, real = next({string}) real.rep = nil",
        "setfenv(1, {})",
        "getfenv(0).x = 1",
        "newproxy(true)",
        "KEYS = nil",
        "coroutine.wrap(function() string.rep = nil end)()",
        "loadstring('x = 1')()",
        "load(function() return nil end)() x = 1",
        "return dofile('/etc/passwd')",
        "return loadfile('/etc/passwd')",
        "return io.open('/etc/passwd')",
        "return os.execute('true')",
        "return require('os')",
        "return package.path",
        "return debug.getregistry()",
        "return print(1)",
    ] {
        let reply = eval(&mut client, attempt);
        assert!(matches!(reply, Reply::Error(_)), "{attempt}: {reply:?}");
        let after = "return {string.rep('x',3), #redis, rawget(_G,'x') == nil}";
        let expected = [Reply::bulk("xxx"), Reply::Integer(0), Reply::Integer(1)];
        assert_eq!(eval(&mut client, after), array(&expected), "{attempt}");
    }
    served.server.stop().unwrap();
}
