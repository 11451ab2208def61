-- Wireshark dissector for erd's datagrams, over UDP and over UD queue pairs (RoCE v2, InfiniBand).
-- Formats: docs/protocol.md, whose sections are cited. Use it with
--     wireshark -X lua_script:erd.lua     or copy it to Wireshark's directory of plugins, with erd_crypto.lua beside it.
-- erd's ports are any. Add  -o udp.try_heuristic_first:TRUE  (a setting of Wireshark's UDP), or the
-- protocol that is registered for such a port reads the packets.

local erd = Proto("erd", "erd reliable datagrams")

-- Wireshark names the script's directory. It is empty for a script of the present directory.
local crypto = dofile((__DIR__ == "" and "" or __DIR__ .. "/") .. "erd_crypto.lua")
local word, hmac, expand, new_cipher = crypto.word, crypto.hmac, crypto.expand, crypto.new_cipher

local HEADER_BYTES, STATE_BYTES, NAME_BYTES = 32, 44, 24
local PORT_BYTES = 104
local VERSION, KEYED_VERSION, TRAILER_BYTES = 2, 3, 24
-- Packets of one direction under one secret, as a power of two (§11.5).
local PHASE_BITS = 22

-- Least bytes of a body, by kind, without a key. The records of a bundle and the words of an acknowledgement follow.
local BODY_BYTES = {
    [0] = 0, [1] = STATE_BYTES + 12, [2] = 8 + NAME_BYTES, [3] = 82 + NAME_BYTES, [4] = 16, [5] = 82 + NAME_BYTES,
    [6] = 8, [7] = 8 + NAME_BYTES + STATE_BYTES, [8] = 8, [9] = 2, [10] = 2, [11] = 4,
}
-- What a key adds to a body of a kind (§11.1): random bytes to a greeting, a key id to a probe and a goodbye.
local KEYED_BYTES = { [2] = 8, [3] = 16, [5] = 16, [7] = 8 }
-- Kinds of packets outside a session, whose S_Len counts key id and proof.
local LOOSE = { [3] = true, [4] = true, [5] = true, [6] = true, [8] = true }
-- Phases after the last one that was proven which are tried: captures have gaps. Anybody can write a counter.
local PHASES_AHEAD = 2

local KINDS = {
    [0] = "data", [1] = "acknowledgement", [2] = "probe", [3] = "hello", [4] = "challenge",
    [5] = "welcome", [6] = "reset", [7] = "goodbye", [8] = "goodbye confirmation",
    [9] = "other version", [10] = "size probe", [11] = "size answer", [15] = "port datagram",
}
local RECORDS = {
    [1] = "eager", [2] = "announcement (RTS)", [3] = "permission (CTS)", [4] = "matched",
    [5] = "acknowledgement", [6] = "write", [7] = "write, announced", [8] = "read", [9] = "atomic",
    [10] = "answer", [11] = "done",
}
local REFUSALS = {
    [0] = "met", [1] = "key", [2] = "bounds", [3] = "rights", [4] = "operation", [5] = "unsupported",
    [6] = "room",
}
local PORT_KINDS = { [1] = "ask", [2] = "answer", [3] = "check", [4] = "confirm" }

local f = {
    -- Common header, §2.1; the first four are EETH's.
    type = ProtoField.uint8("erd.eeth.type", "Type", base.DEC, { [0] = "bundle or control", [1] = "long message" }, 0x80),
    msg_id = ProtoField.uint16("erd.eeth.msg_id", "Msg_ID"),
    s_len = ProtoField.uint16("erd.eeth.s_len", "S_Len"),
    s_offset = ProtoField.uint32("erd.eeth.s_offset", "S_Offset"),
    version = ProtoField.uint8("erd.version", "Version", base.DEC, nil, 0x70),
    kind = ProtoField.uint8("erd.kind", "Kind", base.DEC, KINDS, 0x0f),
    flags = ProtoField.uint8("erd.flags", "Flags", base.HEX),
    ack_wanted = ProtoField.bool("erd.flags.ack_wanted", "Acknowledgement wanted", 8, nil, 0x01),
    payload_sum = ProtoField.bool("erd.flags.payload_checksum", "Payload checksum follows", 8, nil, 0x02),
    eager = ProtoField.bool("erd.flags.eager", "Eager segment", 8, nil, 0x04),
    void = ProtoField.bool("erd.flags.void", "Void segment", 8, nil, 0x08),
    ack_rides = ProtoField.bool("erd.flags.ack", "Acknowledgement rides", 8, nil, 0x10),
    held = ProtoField.bool("erd.flags.held", "Receiver's window holds the sender back", 8, nil, 0x20),
    awaited = ProtoField.bool("erd.flags.awaited", "Application waits", 8, nil, 0x40),
    last = ProtoField.bool("erd.flags.last", "Nothing more for the receiver", 8, nil, 0x80),
    path = ProtoField.uint8("erd.path", "Path"),
    attempt = ProtoField.uint8("erd.attempt", "Attempt (of a probe: rounds before it without an acknowledgement)"),
    psn = ProtoField.uint32("erd.psn", "PSN"),
    session = ProtoField.uint64("erd.session", "Session", base.HEX),
    sent = ProtoField.uint32("erd.sent", "Sent (ns)"),
    checksum = ProtoField.uint32("erd.checksum", "Header checksum", base.HEX),
    payload = ProtoField.bytes("erd.payload", "Payload"),
    -- Keys, §11.
    counter = ProtoField.uint64("erd.counter", "Counter"),
    key_id = ProtoField.bytes("erd.key_id", "Key id"),
    proof = ProtoField.bytes("erd.proof", "Proof"),
    proof_state = ProtoField.string("erd.proof.state", "Proof is"),
    hidden = ProtoField.bytes("erd.hidden", "Hidden"),
    -- Bundles, §5.2, and segments, §5.3.
    records = ProtoField.uint16("erd.records", "Records"),
    record = ProtoField.uint8("erd.record", "Record", base.DEC, RECORDS),
    order = ProtoField.uint32("erd.order", "Send order"),
    op = ProtoField.uint32("erd.op", "Operation"),
    tag = ProtoField.uint64("erd.tag", "Tag", base.HEX),
    data = ProtoField.uint64("erd.data", "Completion data", base.HEX),
    length = ProtoField.uint64("erd.length", "Message length"),
    link_length = ProtoField.uint32("erd.link.length", "Link length"),
    link_base = ProtoField.uint64("erd.link.base", "Link base"),
    wanted = ProtoField.uint64("erd.wanted", "Wanted bytes"),
    -- Size probes, §4.6.
    size_number = ProtoField.uint16("erd.size.number", "Number of the trial"),
    size_arrived = ProtoField.uint16("erd.size.arrived", "Bytes that arrived"),
    -- Requests to memory, §9.
    request_id = ProtoField.uint16("erd.request.msg_id", "Msg_ID of the bytes"),
    reserved = ProtoField.uint16("erd.request.reserved", "Reserved", base.HEX),
    atomic_op = ProtoField.uint8("erd.atomic.op", "Atomic operation"),
    atomic_type = ProtoField.uint8("erd.atomic.datatype", "Datatype"),
    atomic_form = ProtoField.uint8("erd.atomic.form", "Form", base.DEC, { [0] = "update", [1] = "fetch", [2] = "compare" }),
    reserved_byte = ProtoField.uint8("erd.atomic.reserved", "Reserved", base.HEX),
    target = ProtoField.uint64("erd.target.address", "Target address", base.HEX),
    target_length = ProtoField.uint64("erd.target.length", "Target length"),
    key = ProtoField.uint64("erd.target.key", "Key", base.HEX),
    status = ProtoField.uint8("erd.answer.status", "Status", base.DEC, REFUSALS),
    sent_bytes = ProtoField.uint32("erd.answer.sent", "Sent bytes"),
    last_order = ProtoField.uint32("erd.done.last", "Last send order"),
    -- Acknowledgement state, §6.2.
    lowest = ProtoField.uint32("erd.ack.lowest", "Lowest missing PSN"),
    ack_end = ProtoField.uint32("erd.ack.end", "End"),
    seen = ProtoField.uint32("erd.ack.seen", "Latest send time seen"),
    echo = ProtoField.uint32("erd.ack.echo", "Echoed send time"),
    hold = ProtoField.uint32("erd.ack.hold", "Hold time (ns)"),
    marked = ProtoField.uint32("erd.ack.marked", "Marked bytes"),
    received = ProtoField.uint32("erd.ack.received", "Received bytes"),
    eager_limit = ProtoField.uint32("erd.ack.eager_limit", "Eager limit"),
    order_limit = ProtoField.uint32("erd.ack.order_limit", "Order limit"),
    window = ProtoField.uint32("erd.ack.window", "Window"),
    base_psn = ProtoField.uint32("erd.ack.base", "Bitmap base PSN"),
    word = ProtoField.uint64("erd.ack.word", "Bitmap word", base.HEX),
    nack = ProtoField.uint32("erd.ack.nack", "NACK from PSN"),
    nack_count = ProtoField.uint16("erd.ack.nack.count", "NACK packets"),
    -- Greetings, §3.2, and what else names a peer.
    name = ProtoField.string("erd.name", "Name"),
    epoch = ProtoField.uint64("erd.epoch", "Epoch"),
    incarnation = ProtoField.uint32("erd.incarnation", "Incarnation"),
    own_session = ProtoField.uint64("erd.own_session", "Writer's session", base.HEX),
    asker = ProtoField.uint64("erd.asker", "Asker id", base.HEX),
    spoken = ProtoField.uint8("erd.other_version.spoken", "Version of the writer"),
    refused = ProtoField.uint8("erd.other_version.refused", "Version that it refuses"),
    datagram = ProtoField.uint16("erd.datagram", "Largest datagram"),
    paths = ProtoField.uint16("erd.paths", "Paths"),
    cookie = ProtoField.uint64("erd.cookie", "Cookie", base.HEX),
    port_cookie = ProtoField.uint32("erd.port_cookie", "Cookie", base.HEX),
    features = ProtoField.uint32("erd.features", "Features", base.HEX),
    -- Port datagrams, §10.
    port_kind = ProtoField.uint8("erd.port.kind", "Port datagram", base.DEC, PORT_KINDS),
    nonce = ProtoField.uint64("erd.port.nonce", "Nonce", base.HEX),
    gid = ProtoField.ipv6("erd.port.gid", "GID"),
    qpn = ProtoField.uint32("erd.port.qpn", "Receiving queue pair"),
    qkey = ProtoField.uint32("erd.port.qkey", "Q_Key", base.HEX),
    port_tag = ProtoField.uint32("erd.port.tag", "Endpoint's tag"),
}
erd.fields = f

local malformed = ProtoExpert.new("erd.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local wrong = ProtoExpert.new("erd.proof.wrong", "The proof is wrong", expert.group.SECURITY, expert.severity.WARN)
erd.experts = { malformed, wrong }

local function name_text(buf)
    local port, family = buf(2, 2):uint(), buf(0, 1):uint()
    if family == 4 then
        return string.format("%s:%d", tostring(buf(8, 4):ipv4()), port)
    end
    return string.format("[%s]:%d", tostring(buf(8, 16):ipv6()), port)
end

local function add_name(tree, buf)
    tree:add(f.name, buf, name_text(buf))
end

-- Reads fields one after the other.
local function fields(tree, buf, at, list)
    for _, entry in ipairs(list) do
        tree:add(f[entry[1]], buf(at, entry[2]))
        at = at + entry[2]
    end
    return at
end

local function state(tree, buf, at)
    local sub = tree:add(erd, buf(at, STATE_BYTES), "Acknowledgement state")
    fields(sub, buf, at, { { "lowest", 4 }, { "ack_end", 4 }, { "seen", 4 }, { "echo", 4 }, { "hold", 4 } })
    fields(sub, buf, at + 24, {
        { "marked", 4 }, { "received", 4 }, { "eager_limit", 4 }, { "order_limit", 4 }, { "window", 4 },
    })
    return at + STATE_BYTES
end

-- The fields of a request to memory.
local function request(kind, flags)
    local list = { { "order", 4 }, { "op", 4 } }
    local function also(more) for _, field in ipairs(more) do list[#list + 1] = field end end
    if kind == 8 then also({ { "request_id", 2 }, { "reserved", 2 } }) end
    if kind == 9 then
        also({ { "atomic_op", 1 }, { "atomic_type", 1 }, { "atomic_form", 1 }, { "reserved_byte", 1 } })
    end
    if math.floor(flags / 2) % 2 == 1 then also({ { "data", 8 } }) end
    for _ = 0, math.floor(flags / 16) % 4 do also({ { "target", 8 }, { "target_length", 8 }, { "key", 8 } }) end
    return list
end

-- A record of a bundle; answers where the next begins, and the bytes of its payload; nothing after an unknown record.
local function record(tree, buf, at)
    local kind, flags, half = buf(at, 1):uint(), buf(at + 1, 1):uint(), buf(at + 2, 2):uint()
    local sub = tree:add(erd, buf(at), "Record")
    sub:add(f.record, buf(at, 1))
    local function has(bit) return math.floor(flags / bit) % 2 == 1 end
    local list, payload = {}, 0
    if kind == 1 then
        payload = half
        list = { { "order", 4 } }
        if has(4) then list[#list + 1] = { "op", 4 } end
    elseif kind == 2 then
        list = { { "order", 4 }, { "op", 4 }, { "length", 8 } }
    elseif kind == 3 then
        list = { { "order", 4 }, { "op", 4 }, { "link_length", 4 }, { "link_base", 8 }, { "wanted", 8 } }
    elseif kind == 4 then
        list = { { "order", 4 }, { "op", 4 } }
    elseif kind == 5 then
        return state(sub, buf, at + 4), 0
    elseif kind >= 6 and kind <= 9 then
        payload = half
        list = request(kind, flags)
    elseif kind == 10 then
        payload = half
        sub:add(f.status, buf(at + 1, 1))
        list = { { "order", 4 }, { "op", 4 }, { "request_id", 2 }, { "reserved", 2 }, { "sent_bytes", 4 } }
    elseif kind == 11 then
        list = { { "order", 4 }, { "last_order", 4 } }
    else
        sub:add_proto_expert_info(malformed)
        return nil, 0
    end
    if kind <= 2 then
        if has(1) then list[#list + 1] = { "tag", 8 } end
        if has(2) then list[#list + 1] = { "data", 8 } end
    end
    local after = fields(sub, buf, at + 4, list)
    sub:set_len(after - at)
    sub:append_text(": " .. (RECORDS[kind] or "?"))
    return after, payload
end

local function bundle(tree, buf)
    local count = buf(HEADER_BYTES, 2):uint()
    tree:add(f.records, buf(HEADER_BYTES, 2))
    local at, payload = HEADER_BYTES + 2, 0
    for _ = 1, count do
        local bytes
        at, bytes = record(tree, buf, at)
        -- Nobody knows where the next one begins.
        if not at then return string.format("bundle of %d", count) end
        payload = payload + bytes
    end
    if payload > 0 then tree:add(f.payload, buf(at, payload)) end
    return string.format("bundle of %d", count)
end

local function segment(tree, buf)
    local at, flags = HEADER_BYTES, buf(1, 1):uint()
    local eager = math.floor(flags / 4) % 2 == 1
    if eager then
        fields(tree, buf, at + 4, { { "order", 4 }, { "length", 8 } })
        at = at + 32
        if math.floor(flags / 16) % 2 == 1 then at = state(tree, buf, at) end
    end
    local bytes = buf(4, 2):uint()
    if bytes > 0 then tree:add(f.payload, buf(at, bytes)) end
    return string.format("%ssegment of Msg_ID %d, %d bytes at %d", eager and "eager " or "",
        buf(2, 2):uint(), bytes, buf(8, 4):uint())
end

local function acknowledgement(tree, buf)
    local at = state(tree, buf, HEADER_BYTES)
    tree:add(f.base_psn, buf(at, 4))
    local words, nacks = buf(at + 4, 2):uint(), buf(at + 6, 2):uint()
    at = at + 12
    for _ = 1, words do
        tree:add(f.word, buf(at, 8))
        at = at + 8
    end
    for _ = 1, nacks do
        tree:add(f.nack, buf(at, 4))
        tree:add(f.nack_count, buf(at + 4, 2))
        at = at + 8
    end
    return string.format("up to %d", buf(HEADER_BYTES, 4):uint())
end

local function greeting(tree, buf)
    local at = HEADER_BYTES
    tree:add(f.features, buf(at, 4))
    tree:add(f.own_session, buf(at + 4, 8))
    tree:add(f.asker, buf(at + 12, 8))
    tree:add(f.epoch, buf(at + 20, 8))
    tree:add(f.incarnation, buf(at + 28, 4))
    tree:add(f.datagram, buf(at + 40, 2))
    tree:add(f.paths, buf(at + 42, 2))
    tree:add(f.cookie, buf(at + 66, 8))
    local name = buf(buf:len() - NAME_BYTES, NAME_BYTES)
    add_name(tree, name)
    return "from " .. name_text(name)
end

local function port_datagram(tree, buf)
    tree:add(f.port_kind, buf(1, 1))
    tree:add(f.datagram, buf(4, 2))
    tree:add(f.nonce, buf(8, 8))
    tree:add(f.gid, buf(16, 16))
    tree:add(f.port_tag, buf(32, 4))
    tree:add(f.qkey, buf(36, 4))
    tree:add(f.qpn, buf(40, 4))
    tree:add(f.port_cookie, buf(72, 4))
    add_name(tree, buf(76, NAME_BYTES))
    tree:add(f.checksum, buf(100, 4))
    return PORT_KINDS[buf(1, 1):uint()] or "?"
end

local function header(tree, buf)
    for _, field in ipairs({ "type", "version", "kind" }) do tree:add(f[field], buf(0, 1)) end
    local flags = tree:add(f.flags, buf(1, 1))
    for _, field in ipairs({ "ack_wanted", "payload_sum", "eager", "void", "ack_rides", "held", "awaited", "last" }) do
        flags:add(f[field], buf(1, 1))
    end
    fields(tree, buf, 2, {
        { "msg_id", 2 }, { "s_len", 2 }, { "path", 1 }, { "attempt", 1 }, { "s_offset", 4 }, { "psn", 4 },
        { "session", 8 }, { "sent", 4 }, { "checksum", 4 },
    })
end

local function body(tree, buf, kind)
    local first = buf(0, 1):uint()
    if kind == 0 and first < 128 then return bundle(tree, buf) end
    if kind == 0 then return segment(tree, buf) end
    if kind == 1 then return acknowledgement(tree, buf) end
    if kind == 3 or kind == 5 then return greeting(tree, buf) end
    if kind == 4 then
        return fields(tree, buf, HEADER_BYTES, { { "cookie", 8 }, { "epoch", 8 } }) and ""
    end
    if kind == 2 or kind == 7 then
        local at = HEADER_BYTES + 8 + NAME_BYTES
        tree:add(f.asker, buf(HEADER_BYTES, 8))
        add_name(tree, buf(HEADER_BYTES + 8, NAME_BYTES))
        if math.floor(first / 16) % 8 == KEYED_VERSION then
            tree:add(f.key_id, buf(at, 8))
            at = at + 8
        end
        if kind == 7 then state(tree, buf, at) end
        return ""
    end
    if kind == 9 then
        return fields(tree, buf, HEADER_BYTES, { { "spoken", 1 }, { "refused", 1 } }) and ""
    end
    if kind == 10 then return fields(tree, buf, HEADER_BYTES, { { "size_number", 2 } }) and "" end
    if kind == 11 then
        return fields(tree, buf, HEADER_BYTES, { { "size_number", 2 }, { "size_arrived", 2 } }) and ""
    end
    tree:add(f.own_session, buf(HEADER_BYTES, 8))
    return ""
end

-- ---- Keys, §11. ----

-- The body of a packet of a session, if its proof is right under this cipher (§11.4).
local function opened_under(cipher, raw, hides)
    local head, rest = raw:sub(1, HEADER_BYTES), raw:sub(HEADER_BYTES + 1, -TRAILER_BYTES - 1)
    local counter, proof = raw:sub(-TRAILER_BYTES, -TRAILER_BYTES + 7), raw:sub(-16)
    return crypto.opened(cipher, counter, head, rest, proof, hides)
end

-- ---- The keys, and what is known of sessions. ----

erd.prefs.key_files = Pref.string("Key files", "",
    "The job's key and those before and after it (FI_ERD_KEY_FILE), with commas between: to show what is hidden")

local RIGHT, WRONG, NO_KEY = "right", "wrong", "of an unknown key"
local NO_SESSION, NO_READER = "of an unknown session", "for an unknown reader"
-- Most ciphers that are kept, some 20 MB: those of two phases, three keys and 40 sessions.
local CIPHERS_MAX = 512

-- The keys, in the files' order, and files that have none; nil until they are needed.
local keys, bad_files
-- What the owner of a session id said of it (§11.3), by that; the other side's session id, by session id and by the
-- asker's id; the writers of port datagrams by nonce. A proven entry stays until another proven one replaces it. An
-- entry that no key here can judge stands only where nothing is known.
local parts, peers, askers, nonces
-- The secrets of a direction's phases, by the parts of both sides and the key.
local secrets
-- By session id of the reader: the keys of the last packet that was right, and the greatest phase of such a packet.
local used, proven
-- The ids of the keys that a packet with a right proof named.
local named
-- Ciphers by their secret, and how many there are.
local ciphers, ciphers_count
-- The name of the process that the packet went to, if it went over UDP.
local reader_name

local function forget()
    keys, parts, peers, askers, nonces = nil, {}, {}, {}, {}
    secrets, used, proven, named, ciphers, ciphers_count = {}, {}, {}, {}, {}, 0
end
forget()

function erd.init() forget() end
function erd.prefs_changed() forget() end

local function key_in(path)
    local file = io.open(path, "rb")
    local text = file and file:read(256)
    if file then file:close() end
    local digits = text and text:match("^%s*(%x+)%s*$")
    if digits and #digits == 64 then
        return (digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
    end
    return text and #text == 32 and text or nil
end

local function all_keys()
    if keys then return keys end
    keys, bad_files = {}, {}
    for path in erd.prefs.key_files:gmatch("[^,]+") do
        path = path:match("^%s*(.-)%s*$")
        local key = key_in(path)
        if key then
            keys[#keys + 1] = {
                job = key,
                id = expand(key, "erd key id", "", 8),
                loose = expand(key, "erd loose", "", 32),
                renewed = expand(key, "erd renewed", "", 32),
            }
        else
            bad_files[#bad_files + 1] = path
        end
    end
    return keys
end

local function key_of(id)
    for _, key in ipairs(all_keys()) do
        if key.id == id then return key end
    end
end

-- A name as proofs cover it: without a scope, an IPv4 address in its own form.
local function canonical(name)
    local ip = name:sub(9)
    if name:byte(1) == 6 and ip:sub(1, 12) == string.rep("\0", 10) .. "\255\255" then
        return "\4\0" .. name:sub(3, 4) .. word(0) .. ip:sub(13) .. string.rep("\0", 12)
    end
    return name:sub(1, 4) .. word(0) .. ip
end

local ip4, ip6 = Field.new("ip.dst"), Field.new("ipv6.dst")

-- The name of the process that the packet went to: that of the innermost network layer, since a tunnel has several.
local function destination(pinfo)
    local port = word(pinfo.dst_port):sub(3)
    for family, field in pairs({ ["\4"] = ip4, ["\6"] = ip6 }) do
        local all = { field() }
        local last = all[#all]
        if last and last.value == pinfo.net_dst then
            local ip = last.range:raw()
            return family .. "\0" .. port .. word(0) .. ip .. string.rep("\0", 16 - #ip)
        end
    end
end

-- Whether the proof of a packet outside a session is right (§11.2): the keys, and what is covered.
local function loose_state(id, proof, packet, writer, reader, question)
    local key = key_of(id)
    if not key then return NO_KEY end
    if not writer then return NO_SESSION end
    if not reader then return NO_READER end
    local context = canonical(writer) .. canonical(reader) .. question
    local covered = word(0) .. word(#packet) .. packet .. word(0) .. word(#context) .. context
    if hmac(key.loose, covered):sub(1, 16) ~= proof then return WRONG end
    named[id] = true
    return RIGHT
end

-- Whether a packet in this state may say what is true, where this is known (`standing`).
local function counts(state, standing)
    return state == RIGHT or state ~= WRONG and standing == nil
end

-- Remembers a greeting that was judged so, and the key that proves it.
local function note_greeting(raw, kind, id, name, state)
    local body, own, to = raw:sub(HEADER_BYTES + 1), raw:sub(HEADER_BYTES + 5, HEADER_BYTES + 12), raw:sub(17, 24)
    local asker, part = body:sub(13, 20), parts[own]
    if not counts(state, part) then return end
    local said = own .. body:sub(83, 98) .. body:sub(1, 4) .. body:sub(21, 40) .. name
    -- A greeting that is repeated may have another key.
    if not (part and part.right and part.said == said) then part = { ids = {}, told = {} } end
    parts[own] = part
    part.said, part.name, part.random, part.right = said, name, body:sub(83, 98), state == RIGHT
    part.hides = math.floor(body:byte(4) / 16) % 2 == 1
    part.ids[id] = true
    if counts(state, askers[asker]) then askers[asker] = own end
    if kind == 3 then
        part.asked = reader_name
    elseif counts(state, peers[to]) then
        peers[to], peers[own] = own, to
    end
end

-- Whether the proof of a packet outside a session is right. Notes greetings.
local function take_loose(raw, kind)
    local at = #raw - TRAILER_BYTES - (kind == 3 and NAME_BYTES or 0)
    local id, proof = raw:sub(at + 1, at + 8), raw:sub(at + 9, at + 24)
    local length = raw:byte(5) * 256 + raw:byte(6) - TRAILER_BYTES
    local head = raw:sub(1, 4) .. word(length):sub(3) .. raw:sub(7, HEADER_BYTES - 4) .. word(0)
    local packet = head .. raw:sub(HEADER_BYTES + 1, at) .. raw:sub(at + 25)
    if kind == 3 then
        local name = raw:sub(-NAME_BYTES)
        local state = loose_state(id, proof, packet, name, reader_name, "")
        note_greeting(raw, kind, id, name, state)
        return state
    end
    local to = raw:sub(17, 24)
    local question = parts[to] ~= nil
    local own = question and to or askers[to]
    local part = parts[own] or {}
    local peer = parts[peers[own]]
    local writer = part.asked or peer and peer.name
    local state = loose_state(id, proof, packet, writer, part.name, question and part.random or "")
    if kind == 5 then note_greeting(raw, kind, id, raw:sub(at - NAME_BYTES + 1, at), state) end
    return state
end

-- The secret of a phase of the direction to `reader`, in a session that began with this key (§11.3, §11.5).
local function secret_of(reader, base, phase)
    local from, to = parts[peers[reader]].said, parts[reader].said
    local all = from .. to .. base.job
    local known = secrets[all]
    if not known then
        local one, other = from, to
        if other < one then one, other = other, one end
        local session = expand(hmac(one .. other, base.job), "erd session", "", 32)
        known = { [0] = expand(session, "erd direction", from .. to, 32) }
        secrets[all] = known
    end
    for i = #known + 1, phase do known[i] = expand(known[i - 1], "erd next phase", "", 32) end
    return known[phase]
end

-- The cipher of such a phase, in a session that goes on under another key (§11.9) if one is named.
local function cipher_of(reader, phase, base, renewed)
    local secret = secret_of(reader, base, phase)
    if renewed then secret = expand(hmac(renewed.renewed, secret), "erd renewed phase", "", 32) end
    if not ciphers[secret] then
        if ciphers_count == CIPHERS_MAX then ciphers, ciphers_count = {}, 0 end
        ciphers[secret], ciphers_count = new_cipher(secret), ciphers_count + 1
    end
    return ciphers[secret]
end

-- The keys that a packet to `reader` may be under: those that a session can begin with, and go on with since a packet
-- with a right proof named them. The ones of the packet before come first.
local function candidates(reader)
    local last = used[reader] or {}
    local list = { used[reader] }
    local function add(base, renewed)
        if last[1] ~= base or last[2] ~= renewed then list[#list + 1] = { base, renewed } end
    end
    local one, other = parts[reader].ids, parts[peers[reader]].ids
    for _, base in ipairs(all_keys()) do
        if one[base.id] or other[base.id] then
            add(base)
            for _, renewed in ipairs(all_keys()) do
                if renewed ~= base and named[renewed.id] then add(base, renewed) end
            end
        end
    end
    return list
end

-- Whether all keys are there that a session began with, or that a probe in it named.
local function has_its_keys(reader)
    for _, own in ipairs({ reader, peers[reader] }) do
        for id in pairs(parts[own].ids) do
            if not key_of(id) then return false end
        end
        for id in pairs(parts[own].told) do
            if not key_of(id) then return false end
        end
    end
    return true
end

-- Whether the proof of a packet of a session is right, and its body if that can be read.
local function take_of_session(raw, kind)
    local reader = raw:sub(17, 24)
    local to, from = parts[reader], parts[peers[reader]]
    local body = raw:sub(HEADER_BYTES + 1, -TRAILER_BYTES - 1)
    -- A probe and a goodbye are never hidden.
    local proven_only = kind == 2 or kind == 7
    if not (to and from) then return NO_SESSION, proven_only and body or nil end
    local hides = not proven_only and (to.hides or from.hides)
    -- A float, since an integer of Lua 5.4 would wrap.
    local number = 0.0
    for i = 1, 8 do number = number * 256 + raw:byte(#raw - TRAILER_BYTES + i) end
    local phase, last = math.floor(number / 2 ^ PHASE_BITS), proven[reader] or 0
    for _, under in ipairs(phase <= last + PHASES_AHEAD and candidates(reader) or {}) do
        local inside = opened_under(cipher_of(reader, phase, under[1], under[2]), raw, hides)
        if inside then
            used[reader], proven[reader] = under, math.max(phase, last)
            if kind == 2 then
                local id = body:sub(-8)
                to.told[id], named[id] = true, true
            end
            return RIGHT, inside
        end
    end
    return has_its_keys(reader) and WRONG or NO_KEY, not hides and body or nil
end

local function add_state(tree, state)
    local item = tree:add(f.proof_state, state):set_generated()
    if state == WRONG then item:add_proto_expert_info(wrong) end
    if state == NO_KEY and #bad_files > 0 then
        item:append_text(" (no key in " .. table.concat(bad_files, ", ") .. ")")
    end
end

-- The body of a packet with a key.
local function keyed_body(tree, buf, kind)
    local at, raw = buf:len() - TRAILER_BYTES, buf:raw()
    if LOOSE[kind] then
        if kind == 3 then at = at - NAME_BYTES end
        fields(tree, buf, at, { { "key_id", 8 }, { "proof", 16 } })
        add_state(tree, take_loose(raw, kind))
        -- A hello ends with its name, with a key or without.
        return body(tree, kind == 3 and buf or buf(0, at):tvb(), kind)
    end
    fields(tree, buf, at, { { "counter", 8 }, { "proof", 16 } })
    local state, inside = take_of_session(raw, kind)
    add_state(tree, state)
    if not inside then
        tree:add(f.hidden, buf(HEADER_BYTES, at - HEADER_BYTES))
        return "hidden"
    end
    if inside == raw:sub(HEADER_BYTES + 1, at) then return body(tree, buf(0, at):tvb(), kind) end
    local shown = ByteArray.new(raw:sub(1, HEADER_BYTES) .. inside, true)
    return body(tree, shown:tvb("Hidden part"), kind)
end

-- The proof of a port datagram (§11.10).
local function keyed_port_datagram(tree, buf)
    fields(tree, buf, PORT_BYTES, { { "key_id", 8 }, { "proof", 16 } })
    local raw, kind = buf:raw(), buf(1, 1):uint()
    local nonce, writer = raw:sub(9, 16), raw:sub(77, 76 + NAME_BYTES)
    local id, proof = raw:sub(PORT_BYTES + 1, PORT_BYTES + 8), raw:sub(PORT_BYTES + 9)
    local asks = kind % 2 == 1
    local reader = not asks and nonces[nonce] or reader_name
    local state = loose_state(id, proof, raw:sub(1, PORT_BYTES), writer, reader, "")
    if asks and counts(state, nonces[nonce]) then nonces[nonce] = writer end
    add_state(tree, state)
end

-- Everything that a packet holds; answers what the column shows of it.
local function whole(tree, buf, kind)
    if kind == 15 then
        local told = port_datagram(tree, buf)
        if buf:len() > PORT_BYTES then keyed_port_datagram(tree, buf) end
        return told
    end
    header(tree, buf)
    local keyed = math.floor(buf(0, 1):uint() / 16) % 8 == KEYED_VERSION and kind ~= 9
    local least = HEADER_BYTES + BODY_BYTES[kind]
    if keyed then least = least + (KEYED_BYTES[kind] or 0) + TRAILER_BYTES end
    if buf:len() < least then error("too short") end
    return keyed and keyed_body(tree, buf, kind) or body(tree, buf, kind)
end

function erd.dissector(buf, pinfo, root)
    local kind = buf(0, 1):uint() % 16
    local tree = root:add(erd, buf())
    pinfo.cols.protocol = "erd"
    -- A packet whose lengths do not fit each other is read beyond its end.
    local fits, told = pcall(whole, tree, buf, kind)
    if not fits then
        tree:add_proto_expert_info(malformed, "Malformed: " .. tostring(told))
        told = "malformed"
    end
    pinfo.cols.info = string.format("%s %s", KINDS[kind] or "?", told or "")
    tree:append_text(", " .. (KINDS[kind] or "?"))
    return buf:len()
end

-- The length that the header tells of what is surely erd's: version 2 or 3, a known kind, and bytes enough
-- for this length, with no more than `slack` of them to spare; false for anything else.
local function length(buf, slack)
    if buf:len() < HEADER_BYTES then return false end
    local first, flags = buf(0, 1):uint(), buf(1, 1):uint()
    local kind, long = first % 16, first >= 128
    local version = math.floor(first / 16) % 8
    if version ~= VERSION and version ~= KEYED_VERSION and kind ~= 9 then return false end
    if kind == 15 then
        local told = PORT_BYTES + (version == KEYED_VERSION and TRAILER_BYTES or 0)
        return buf:len() == told and not long and PORT_KINDS[flags] ~= nil and told
    end
    if KINDS[kind] == nil or (long and kind ~= 0) then return false end
    local eager = math.floor(flags / 4) % 2 == 1
    local sum = math.floor(flags / 2) % 2 == 1
    local rides = eager and math.floor(flags / 16) % 2 == 1
    local told = HEADER_BYTES + buf(4, 2):uint() + (eager and 32 or 0) + (rides and STATE_BYTES or 0) + (sum and 4 or 0)
        + (version == KEYED_VERSION and not LOOSE[kind] and TRAILER_BYTES or 0)
    return told <= buf:len() and buf:len() <= told + slack and told
end

local function heuristic(slack, over_udp)
    return function(buf, pinfo, root)
        local told = length(buf, slack)
        if not told then return false end
        reader_name = over_udp and destination(pinfo) or nil
        erd.dissector(buf(0, told):tvb(), pinfo, root)
        return true
    end
end

erd:register_heuristic("udp", heuristic(0, true))
-- Payloads are padded to whole words there.
erd:register_heuristic("infiniband.payload", heuristic(3, false))
