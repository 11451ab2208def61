-- Wireshark dissector for erd's datagrams, over UDP and over UD queue pairs (RoCE v2, InfiniBand).
-- Formats: docs/protocol.md, whose sections are cited. Use it with
--     wireshark -X lua_script:erd.lua     or copy it to Wireshark's directory of plugins.
-- erd's ports are any. Add  -o udp.try_heuristic_first:TRUE  (a setting of Wireshark's UDP), or the
-- protocol that is registered for such a port reads the packets.

local erd = Proto("erd", "erd reliable datagrams")

local HEADER_BYTES, STATE_BYTES, NAME_BYTES = 32, 44, 24
local PORT_BYTES, SEAL_BYTES = 104, 8
local VERSION = 2

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
    sealed = ProtoField.bool("erd.flags.seal", "Seal follows", 8, nil, 0x20),
    awaited = ProtoField.bool("erd.flags.awaited", "Application waits", 8, nil, 0x40),
    path = ProtoField.uint8("erd.path", "Path"),
    attempt = ProtoField.uint8("erd.attempt", "Attempt"),
    psn = ProtoField.uint32("erd.psn", "PSN"),
    session = ProtoField.uint64("erd.session", "Session", base.HEX),
    sent = ProtoField.uint32("erd.sent", "Sent (ns)"),
    checksum = ProtoField.uint32("erd.checksum", "Header checksum", base.HEX),
    payload = ProtoField.bytes("erd.payload", "Payload"),
    seal = ProtoField.bytes("erd.seal", "Seal"),
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
erd.experts = { malformed }

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

-- A record of a bundle; answers where the next begins, and the bytes of its payload.
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
        return buf:len(), 0
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
    if math.floor(flags / 32) % 2 == 1 then tree:add(f.seal, buf(buf:len() - SEAL_BYTES, SEAL_BYTES)) end
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
    for _, field in ipairs({ "ack_wanted", "payload_sum", "eager", "void", "ack_rides", "sealed", "awaited" }) do
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
        tree:add(f.asker, buf(HEADER_BYTES, 8))
        add_name(tree, buf(HEADER_BYTES + 8, NAME_BYTES))
        if kind == 7 then state(tree, buf, HEADER_BYTES + 8 + NAME_BYTES) end
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

function erd.dissector(buf, pinfo, root)
    local kind = buf(0, 1):uint() % 16
    local tree = root:add(erd, buf())
    pinfo.cols.protocol = "erd"
    local told
    if kind == 15 then
        told = port_datagram(tree, buf)
    else
        header(tree, buf)
        told = body(tree, buf, kind)
    end
    pinfo.cols.info = string.format("%s %s", KINDS[kind] or "?", told or "")
    tree:append_text(", " .. (KINDS[kind] or "?"))
    return buf:len()
end

-- The length that the header tells of what is surely erd's: version 2, a known kind, and bytes enough
-- for this length, with no more than `slack` of them to spare; false for anything else.
local function length(buf, slack)
    if buf:len() < HEADER_BYTES then return false end
    local first, flags = buf(0, 1):uint(), buf(1, 1):uint()
    local kind, long = first % 16, first >= 128
    if math.floor(first / 16) % 8 ~= VERSION and kind ~= 9 then return false end
    if kind == 15 then
        return buf:len() == PORT_BYTES and not long and PORT_KINDS[flags] ~= nil and PORT_BYTES
    end
    if KINDS[kind] == nil or flags > 127 or (long and kind ~= 0) then return false end
    local eager = math.floor(flags / 4) % 2 == 1
    local sum = math.floor(flags / 2) % 2 == 1
    local rides = eager and math.floor(flags / 16) % 2 == 1
    local sealed = math.floor(flags / 32) % 2 == 1
    local told = HEADER_BYTES + buf(4, 2):uint() + (eager and 32 or 0) + (rides and STATE_BYTES or 0) + (sum and 4 or 0)
        + (sealed and SEAL_BYTES or 0)
    return told <= buf:len() and buf:len() <= told + slack and told
end

local function heuristic(slack)
    return function(buf, pinfo, root)
        local told = length(buf, slack)
        if not told then return false end
        erd.dissector(buf(0, told):tvb(), pinfo, root)
        return true
    end
end

erd:register_heuristic("udp", heuristic(0))
-- Payloads are padded to whole words there.
erd:register_heuristic("infiniband.payload", heuristic(3))
