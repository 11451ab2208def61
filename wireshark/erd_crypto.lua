-- What erd's keys are made of: SHA-256, HMAC, HKDF and AES-128-GCM, in Lua alone. `erd.lua` loads this file, which
-- lies beside it. It knows nothing of packets, and keeps nothing between calls.

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

-- GHASH's tables for a key: what a byte times the key is, in four words, and what a byte that is shifted out comes to.
local function products(key)
    local v, t = {}, { [0] = { 0, 0, 0, 0 } }
    for i = 0, 3 do
        local a, b, c, d = key[4 * i + 1], key[4 * i + 2], key[4 * i + 3], key[4 * i + 4]
        v[i + 1] = bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
    end
    for shift = 7, 0, -1 do
        local one = lshift(1, shift)
        t[one] = { v[1], v[2], v[3], v[4] }
        local out = band(v[4], 1)
        for i = 4, 2, -1 do v[i] = bor(rshift(v[i], 1), lshift(v[i - 1], 31)) end
        v[1] = bxor(rshift(v[1], 1), out == 1 and 0xe1000000 or 0)
    end
    for byte = 1, 255 do
        local low = band(byte, -byte)
        local x, y = t[low], t[byte - low]
        t[byte] = t[byte] or { bxor(x[1], y[1]), bxor(x[2], y[2]), bxor(x[3], y[3]), bxor(x[4], y[4]) }
    end
    return t
end

local SHIFTED_OUT = {}
for byte = 0, 255 do
    local low, high = byte, 0
    for _ = 1, 8 do
        high = bxor(rshift(high, 1), band(low, 1) == 1 and 0xe1000000 or 0)
        low = rshift(low, 1)
    end
    SHIFTED_OUT[byte] = high
end

local function padded(text) return text .. string.rep("\0", -#text % 16) end

-- GHASH of what is readable and what is hidden, with their lengths.
local function ghash(t, clear, hidden)
    local text = padded(clear) .. padded(hidden) .. word(0) .. word(8 * #clear) .. word(0) .. word(8 * #hidden)
    local z1, z2, z3, z4 = 0, 0, 0, 0
    for at = 1, #text, 16 do
        local x, z = { text:byte(at, at + 15) }, { z1, z2, z3, z4 }
        z1, z2, z3, z4 = 0, 0, 0, 0
        for i = 16, 1, -1 do
            local byte = bxor(x[i], band(rshift(z[math.floor((i + 3) / 4)], 8 * (-i % 4)), 0xff))
            local more, out = t[byte], SHIFTED_OUT[band(z4, 0xff)]
            z4 = bxor(bor(rshift(z4, 8), lshift(z3, 24)), more[4])
            z3 = bxor(bor(rshift(z3, 8), lshift(z2, 24)), more[3])
            z2 = bxor(bor(rshift(z2, 8), lshift(z1, 24)), more[2])
            z1 = bxor(rshift(z1, 8), out, more[1])
        end
    end
    return word(z1) .. word(z2) .. word(z3) .. word(z4)
end

-- AES-128-GCM under the key and initial value that follow from a secret.
local function new_cipher(secret)
    local material = expand(secret, "erd key", "", 28)
    local w, zero = round_keys(material:sub(1, 16)), {}
    for i = 1, 16 do zero[i] = 0 end
    return { keys = w, products = products(aes_block(w, zero)), initial = { material:byte(17, 28) } }
end

-- `text` and the stream of a counter, from this block on: encrypts and decrypts.
local function streamed(cipher, counter, first, text)
    local nonce, out = { table.unpack(cipher.initial) }, {}
    for i = 1, 8 do nonce[4 + i] = bxor(nonce[4 + i], counter:byte(i)) end
    for at = 1, #text, 16 do
        local number = word((at - 1) / 16 + first)
        local block = { table.unpack(nonce) }
        for i = 1, 4 do block[12 + i] = number:byte(i) end
        local stream, part = aes_block(cipher.keys, block), { text:byte(at, at + 15) }
        for i = 1, #part do part[i] = string.char(bxor(part[i], stream[i])) end
        out[#out + 1] = table.concat(part)
    end
    return table.concat(out)
end

-- What comes before the hidden part or is all that is proven (`head`), and the rest, under a proof of GCM: the rest as
-- it was before it was hidden, or as it is if it is not hidden; nil if the proof is wrong.
local function opened(cipher, counter, head, rest, proof, hides)
    -- GCM's first block is the proof's.
    local clear, hidden = head, rest
    if not hides then clear, hidden = rest, streamed(cipher, counter, 2, head) end
    if streamed(cipher, counter, 1, ghash(cipher.products, clear, hidden)) ~= proof then return nil end
    return hides and streamed(cipher, counter, 2, rest) or rest
end

return { word = word, hmac = hmac, expand = expand, new_cipher = new_cipher, opened = opened }
