-- Wireshark dissector for erd's datagrams, over UDP and over UD queue pairs (RoCE v2, InfiniBand).
-- Formats: docs/protocol.md, whose sections are cited. Use it with
--     wireshark -X lua_script:erd.lua     or copy it to Wireshark's directory of plugins.
-- erd's ports are any. Add  -o udp.try_heuristic_first:TRUE  (a setting of Wireshark's UDP), or the
-- protocol that is registered for such a port reads the packets.

local erd = Proto("erd", "erd reliable datagrams")

local HEADER_BYTES, STATE_BYTES, NAME_BYTES = 32, 44, 24
local PORT_BYTES, SEAL_BYTES = 104, 8
local VERSION, KEYED_VERSION, TRAILER_BYTES = 2, 3, 24

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
    -- Keys, §11.
    counter = ProtoField.uint64("erd.counter", "Counter"),
    key_id = ProtoField.bytes("erd.key_id", "Key id"),
    proof = ProtoField.bytes("erd.proof", "Proof"),
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
    -- With a key, §11.10.
    if buf:len() > PORT_BYTES then fields(tree, buf, PORT_BYTES, { { "key_id", 8 }, { "proof", 16 } }) end
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

local band, bor, bxor, bnot, tobit = bit.band, bit.bor, bit.bxor, bit.bnot, bit.tobit
local lshift, rshift, ror = bit.lshift, bit.rshift, bit.ror

-- The first 32 bits of the fractions of roots of primes: SHA-256's constants.
local function fractions(count, root)
    local out, number = {}, 2
    while #out < count do
        local prime = true
        for divisor = 2, math.floor(number ^ 0.5) do prime = prime and number % divisor ~= 0 end
        if prime then out[#out + 1] = math.floor(number ^ (1 / root) % 1 * 2 ^ 32) end
        number = number + 1
    end
    return out
end
local ROUNDS, START = fractions(64, 3), fractions(8, 2)

local function word(number)
    number = number % 2 ^ 32
    local function byte(shift) return math.floor(number / 2 ^ shift) % 256 end
    return string.char(byte(24), byte(16), byte(8), byte(0))
end

-- The eight words of SHA-256 after one block.
local function sha256_block(h, text, at)
    local w = {}
    for i = 1, 16 do
        local a, b, c, d = text:byte(at + 4 * i - 4, at + 4 * i - 1)
        w[i] = bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
    end
    for i = 17, 64 do
        local s0 = bxor(ror(w[i - 15], 7), ror(w[i - 15], 18), rshift(w[i - 15], 3))
        local s1 = bxor(ror(w[i - 2], 17), ror(w[i - 2], 19), rshift(w[i - 2], 10))
        w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
    end
    local v = { table.unpack(h) }
    for i = 1, 64 do
        local a, e = v[1], v[5]
        local choice = bxor(band(e, v[6]), band(bnot(e), v[7]))
        local t1 = tobit(v[8] + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + choice + ROUNDS[i] + w[i])
        local most = bxor(band(a, v[2]), band(a, v[3]), band(v[2], v[3]))
        local t2 = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + most)
        v = { tobit(t1 + t2), a, v[2], v[3], tobit(v[4] + t1), e, v[6], v[7] }
    end
    for i = 1, 8 do h[i] = tobit(h[i] + v[i]) end
end

local function sha256(text)
    local h, bits = { table.unpack(START) }, 8 * #text
    text = text .. "\128" .. string.rep("\0", (55 - #text) % 64) .. word(0) .. word(bits)
    for at = 1, #text, 64 do sha256_block(h, text, at) end
    local out = {}
    for i = 1, 8 do out[i] = word(h[i]) end
    return table.concat(out)
end

local function xored(text, with)
    return (text:gsub(".", function(c) return string.char(bxor(c:byte(), with)) end))
end

local function hmac(key, text)
    if #key > 64 then key = sha256(key) end
    key = key .. string.rep("\0", 64 - #key)
    return sha256(xored(key, 0x5c) .. sha256(xored(key, 0x36) .. text))
end

-- HKDF-Expand, with the label's length before it.
local function expand(secret, label, context, bytes)
    local info, out, last, round = string.char(#label) .. label .. context, "", "", 1
    while #out < bytes do
        last = hmac(secret, last .. info .. string.char(round))
        out, round = out .. last, round + 1
    end
    return out:sub(1, bytes)
end

local function doubled(byte) return bxor(band(lshift(byte, 1), 0xff), byte >= 0x80 and 0x1b or 0) end

-- AES's table of substitutions: inverses in its field, as powers of 3 and of its inverse.
local BOX = { [0] = 0x63 }
do
    local power, inverse = 1, 1
    repeat
        power = bxor(power, doubled(power))
        for _, shift in ipairs({ 1, 2, 4 }) do inverse = band(bxor(inverse, lshift(inverse, shift)), 0xff) end
        if inverse >= 0x80 then inverse = bxor(inverse, 0x09) end
        local mixed = 0x63
        for turn = 0, 4 do
            mixed = bxor(mixed, band(bor(lshift(inverse, turn), rshift(inverse, 8 - turn)), 0xff))
        end
        BOX[power] = mixed
    until power == 1
end

-- The 176 bytes of AES-128's round keys.
local function round_keys(key)
    local w, constant = { key:byte(1, 16) }, 1
    for at = 16, 175, 4 do
        local t = { w[at - 3], w[at - 2], w[at - 1], w[at] }
        if at % 16 == 0 then
            t = { bxor(BOX[t[2]], constant), BOX[t[3]], BOX[t[4]], BOX[t[1]] }
            constant = doubled(constant)
        end
        for i = 1, 4 do w[at + i] = bxor(w[at + i - 16], t[i]) end
    end
    return w
end

local function aes_block(w, block)
    local s = {}
    for i = 1, 16 do s[i] = bxor(block[i], w[i]) end
    for round = 1, 10 do
        local t = {}
        for i = 0, 15 do t[i + 1] = BOX[s[(i + 4 * (i % 4)) % 16 + 1]] end
        for column = 0, round < 10 and 12 or -1, 4 do
            local a, all = { t[column + 1], t[column + 2], t[column + 3], t[column + 4] }, 0
            for i = 1, 4 do all = bxor(all, a[i]) end
            for i = 1, 4 do t[column + i] = bxor(a[i], all, doubled(bxor(a[i], a[i % 4 + 1]))) end
        end
        for i = 1, 16 do s[i] = bxor(t[i], w[16 * round + i]) end
    end
    return s
end

-- Decrypts what AES-128-GCM hid; the proof is not checked.
local function shown(material, counter, hidden)
    local w, nonce = round_keys(material:sub(1, 16)), { material:byte(17, 28) }
    for i = 1, 8 do nonce[4 + i] = bxor(nonce[4 + i], counter:byte(i)) end
    local out = {}
    for at = 1, #hidden, 16 do
        -- GCM's first block is the proof's.
        local number = word((at - 1) / 16 + 2)
        local block = { table.unpack(nonce) }
        for i = 1, 4 do block[12 + i] = number:byte(i) end
        local stream, part = aes_block(w, block), { hidden:byte(at, at + 15) }
        for i = 1, #part do part[i] = string.char(bxor(part[i], stream[i])) end
        out[#out + 1] = table.concat(part)
    end
    return table.concat(out)
end

erd.prefs.key_file = Pref.string("Key file", "", "The job's key (FI_ERD_KEY_FILE), to show what it hides")

-- By session id: what its owner said of it (§11.3), the other side's id, and the secrets of a direction's phases.
local parts, peers, secrets = {}, {}, {}

function erd.init() parts, peers, secrets = {}, {}, {} end

local function job_key()
    local file = erd.prefs.key_file ~= "" and io.open(erd.prefs.key_file, "rb")
    if not file then return nil end
    local text = file:read(256)
    file:close()
    local digits = text:match("^%s*(%x+)%s*$")
    if digits and #digits == 64 then
        return (digits:gsub("..", function(pair) return string.char(tonumber(pair, 16)) end))
    end
    return #text == 32 and text or nil
end

-- Remembers a greeting.
local function note_greeting(buf, kind)
    local raw = buf:raw()
    local body, own = raw:sub(HEADER_BYTES + 1), raw:sub(HEADER_BYTES + 5, HEADER_BYTES + 12)
    local name = kind == 3 and raw:sub(-NAME_BYTES) or raw:sub(-NAME_BYTES - TRAILER_BYTES, -TRAILER_BYTES - 1)
    parts[own] = {
        said = own .. body:sub(83, 98) .. body:sub(1, 4) .. body:sub(21, 40) .. name,
        hides = math.floor(body:byte(4) / 16) % 2 == 1,
    }
    if kind == 5 then
        local to = raw:sub(17, 24)
        peers[to], peers[own] = own, to
    end
end

-- The key and initial value of a packet to the session `reader` with this counter.
local function material(key, reader, counter)
    local writer = peers[reader]
    local from, to = parts[writer], parts[reader]
    if not secrets[reader] then
        local one, other = from.said, to.said
        if other < one then one, other = other, one end
        local session = expand(hmac(one .. other, key), "erd session", "", 32)
        secrets[reader] = { [0] = expand(session, "erd direction", from.said .. to.said, 32) }
    end
    local phase, number = 0, 0
    for i = 1, 8 do number = number * 256 + counter:byte(i) end
    phase = math.floor(number / 2 ^ 22)
    local known = secrets[reader]
    for i = #known + 1, phase do known[i] = expand(known[i - 1], "erd next phase", "", 32) end
    return expand(known[phase], "erd key", "", 28)
end

-- A packet of a session as it was before it was hidden, or nil if that cannot be told.
local function opened(buf)
    local raw = buf:raw()
    local reader = raw:sub(17, 24)
    local known = parts[reader] and parts[peers[reader]]
    if not known then return nil end
    local packet = raw:sub(1, -TRAILER_BYTES - 1)
    if not (known.hides or parts[reader].hides) then return buf(0, #packet):tvb() end
    local key = job_key()
    if not key then return nil end
    local counter = raw:sub(-TRAILER_BYTES, -TRAILER_BYTES + 7)
    local inside = shown(material(key, reader, counter), counter, packet:sub(HEADER_BYTES + 1))
    return ByteArray.new(packet:sub(1, HEADER_BYTES) .. inside, true):tvb("Hidden part")
end

local LOOSE = { [3] = true, [4] = true, [5] = true, [6] = true, [8] = true }

-- The body of a packet with a key.
local function keyed_body(tree, buf, kind)
    local at = buf:len() - TRAILER_BYTES
    if LOOSE[kind] then
        if kind == 3 then at = at - NAME_BYTES end
        fields(tree, buf, at, { { "key_id", 8 }, { "proof", 16 } })
        if kind == 3 or kind == 5 then note_greeting(buf, kind) end
        -- A hello ends with its name, with a key or without.
        return body(tree, kind == 3 and buf or buf(0, at):tvb(), kind)
    end
    fields(tree, buf, at, { { "counter", 8 }, { "proof", 16 } })
    -- A probe and a goodbye are never hidden.
    local inside = (kind == 2 or kind == 7) and buf(0, at):tvb() or opened(buf)
    if inside then return body(tree, inside, kind) end
    tree:add(f.hidden, buf(HEADER_BYTES, at - HEADER_BYTES))
    return "hidden"
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
        local keyed = math.floor(buf(0, 1):uint() / 16) % 8 == KEYED_VERSION and kind ~= 9
        told = keyed and keyed_body(tree, buf, kind) or body(tree, buf, kind)
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
    if KINDS[kind] == nil or flags > 127 or (long and kind ~= 0) then return false end
    local eager = math.floor(flags / 4) % 2 == 1
    local sum = math.floor(flags / 2) % 2 == 1
    local rides = eager and math.floor(flags / 16) % 2 == 1
    local sealed = math.floor(flags / 32) % 2 == 1
    local told = HEADER_BYTES + buf(4, 2):uint() + (eager and 32 or 0) + (rides and STATE_BYTES or 0) + (sum and 4 or 0)
        + (sealed and SEAL_BYTES or 0) + (version == KEYED_VERSION and not LOOSE[kind] and TRAILER_BYTES or 0)
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
