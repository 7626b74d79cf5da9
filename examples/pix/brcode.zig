//! The pure core of Payment.CreatePix: JSON in, the text of a static Pix "BR Code" (EMV QR, CRC included) out.
//! Bytes in, bytes out: no global state, no input or output, and no memory but the arena that the caller brings.
//!
//! Sources: Manual de Padrões para Iniciação do Pix (Banco Central do Brasil); EMV QRCPS Merchant-Presented Mode.

const std = @import("std");
const ascii = std.ascii;
const json = std.json;
const Allocator = std.mem.Allocator;
const Writer = std.Io.Writer;

/// Each is explained at its return code, in action.zig.
pub const Fault = error{
    PayloadTooLarge,
    InvalidJson,
    WrongType,
    UnknownMember,
    DuplicateMember,
    MissingMember,
    InvalidKey,
    InvalidAmount,
    InvalidMerchantName,
    InvalidMerchantCity,
    InvalidTxid,
    InvalidDescription,
    AccountTooLong,
    OutOfMemory,
};

/// Above any valid payload, even with each character written as an escape of six.
pub const max_input = 4096;
const max_account = 99;
const max_amount = 13;
const max_name = 25;
const max_city = 15;
const max_txid = 25;
/// Fields 00, 26, 52, 53, 54, 58, 59, 60, 62 (with 05 inside) and 63: an identifier of two, a length of two, a value.
pub const max_code = 10 * 4 + 2 + max_account + 4 + 3 + max_amount + 2 + max_name + max_city + (4 + max_txid) + 4;

/// A JSON string and nothing else: for `[]const u8` alone, std.json would take an array of numbers too.
const Text = struct {
    bytes: []const u8,

    pub fn jsonParse(arena: Allocator, source: anytype, options: json.ParseOptions) !Text {
        return switch (try source.nextAllocMax(arena, .alloc_if_needed, options.max_value_len.?)) {
            inline .string, .allocated_string => |bytes| .{ .bytes = bytes },
            else => error.UnexpectedToken,
        };
    }
};

/// The payload. Its texts point into the JSON or into the arena; both must outlive it.
pub const Request = struct {
    key: Text,
    amount: ?Text = null,
    merchant_name: Text,
    merchant_city: Text,
    txid: ?Text = null,
    description: ?Text = null,

    pub fn parse(arena: Allocator, payload: []const u8) Fault!Request {
        if (payload.len > max_input) return error.PayloadTooLarge;
        const request = json.parseFromSliceLeaky(Request, arena, payload, .{}) catch |err| return switch (err) {
            error.OutOfMemory => error.OutOfMemory,
            error.UnknownField => error.UnknownMember,
            error.DuplicateField => error.DuplicateMember,
            error.MissingField => error.MissingMember,
            error.UnexpectedToken => error.WrongType,
            else => error.InvalidJson,
        };
        try request.check();
        return request;
    }

    fn check(request: Request) Fault!void {
        if (!isKey(request.key.bytes)) return error.InvalidKey;
        if (request.amount) |amount| if (!isAmount(amount.bytes)) return error.InvalidAmount;
        if (!isText(request.merchant_name.bytes, max_name)) return error.InvalidMerchantName;
        if (!isText(request.merchant_city.bytes, max_city)) return error.InvalidMerchantCity;
        if (request.txid) |txid| if (!isTxid(txid.bytes)) return error.InvalidTxid;
        if (request.description) |text| if (!isText(text.bytes, max_input)) return error.InvalidDescription;
    }

    /// Writes the BR Code of a parsed request; the answer is a slice of `buffer`.
    pub fn write(request: Request, buffer: *[max_code]u8) error{AccountTooLong}![]const u8 {
        // The buffer is the limit: what does not fit in it would not fit a length of two digits.
        var account_buffer: [max_account]u8 = undefined;
        var account: Writer = .fixed(&account_buffer);
        request.writeAccount(&account) catch return error.AccountTooLong;

        var code: Writer = .fixed(buffer);
        request.writeCode(&code, account.buffered()) catch unreachable; // `max_code` is the sum of the parts.
        return code.buffered();
    }

    fn writeAccount(request: Request, out: *Writer) Writer.Error!void {
        try field(out, "00", "br.gov.bcb.pix");
        try field(out, "01", request.key.bytes);
        if (request.description) |text| try field(out, "02", text.bytes);
    }

    fn writeCode(request: Request, out: *Writer, account: []const u8) Writer.Error!void {
        try field(out, "00", "01"); // Payload format indicator.
        try field(out, "26", account);
        try field(out, "52", "0000"); // Merchant category: none.
        try field(out, "53", "986"); // BRL.
        if (request.amount) |amount| try field(out, "54", amount.bytes);
        try field(out, "58", "BR");
        try field(out, "59", request.merchant_name.bytes);
        try field(out, "60", request.merchant_city.bytes);

        var additional_buffer: [4 + max_txid]u8 = undefined;
        var additional: Writer = .fixed(&additional_buffer);
        try field(&additional, "05", if (request.txid) |txid| txid.bytes else "***");
        try field(out, "62", additional.buffered());

        try out.writeAll("6304"); // The CRC covers its own identifier and length.
        try out.print("{X:0>4}", .{crc16(out.buffered())});
    }
};

fn field(out: *Writer, id: *const [2]u8, value: []const u8) Writer.Error!void {
    try out.print("{s}{d:0>2}{s}", .{ id, value.len, value });
}

/// CRC-16/CCITT-FALSE. Spelled out: std has it under a name that changed between 0.16 and 0.17.
fn crc16(bytes: []const u8) u16 {
    var crc: u16 = 0xffff;
    for (bytes) |byte| {
        crc ^= @as(u16, byte) << 8;
        for (0..8) |_| crc = if (crc & 0x8000 != 0) (crc << 1) ^ 0x1021 else crc << 1;
    }
    return crc;
}

/// Printable ASCII, so that a character is a byte whichever of the two a reader counts.
fn isText(text: []const u8, max: usize) bool {
    if (text.len == 0 or text.len > max) return false;
    if (text[0] == ' ' or text[text.len - 1] == ' ') return false;
    return all(text, ascii.isPrint);
}

fn isTxid(text: []const u8) bool {
    if (std.mem.eql(u8, text, "***")) return true;
    return text.len >= 1 and text.len <= max_txid and all(text, ascii.isAlphanumeric);
}

fn isAmount(text: []const u8) bool {
    if (text.len < 4 or text.len > max_amount or text[text.len - 3] != '.') return false;
    const reais = text[0 .. text.len - 3];
    const cents = text[text.len - 2 ..];
    if (!all(reais, ascii.isDigit) or !all(cents, ascii.isDigit)) return false;
    return if (reais[0] == '0') reais.len == 1 and !std.mem.eql(u8, cents, "00") else true;
}

fn isKey(key: []const u8) bool {
    return switch (key.len) {
        11 => all(key, ascii.isDigit), // CPF
        14 => all(key[0..12], isCnpjRoot) and all(key[12..], ascii.isDigit),
        36 => isUuid(key),
        else => false,
    } or isPhone(key) or isEmail(key);
}

/// E.164: a plus sign, then 2 to 15 digits of which the first is not zero.
fn isPhone(key: []const u8) bool {
    return key.len >= 3 and key.len <= 16 and key[0] == '+' and key[1] != '0' and all(key[1..], ascii.isDigit);
}

fn isEmail(key: []const u8) bool {
    if (key.len > 77) return false;
    const at = std.mem.indexOfScalar(u8, key, '@') orelse return false;
    if (at == 0 or !all(key[0..at], isLocal)) return false;
    var labels = std.mem.splitScalar(u8, key[at + 1 ..], '.');
    while (labels.next()) |label| {
        if (label.len == 0 or label.len > 63 or !all(label, isLabel)) return false;
        if (label[0] == '-' or label[label.len - 1] == '-') return false;
    }
    return true;
}

fn isUuid(key: []const u8) bool {
    for (key, 0..) |char, at| switch (at) {
        8, 13, 18, 23 => if (char != '-') return false,
        else => if (!ascii.isHex(char) or ascii.isUpper(char)) return false,
    };
    return true;
}

/// Letters too: CNPJs given out since July 2026 may have them.
fn isCnpjRoot(char: u8) bool {
    return ascii.isDigit(char) or ascii.isUpper(char);
}

fn isLabel(char: u8) bool {
    return ascii.isDigit(char) or ascii.isLower(char) or char == '-';
}

fn isLocal(char: u8) bool {
    return isLabel(char) or std.mem.indexOfScalar(u8, ".!#$'*+/=?^_`{|}~", char) != null;
}

fn all(text: []const u8, comptime accepts: fn (u8) bool) bool {
    for (text) |char| if (!accepts(char)) return false;
    return true;
}

const testing = std.testing;

fn expectCode(expected: Fault![]const u8, payload: []const u8) !void {
    var arena: std.heap.ArenaAllocator = .init(testing.allocator);
    defer arena.deinit();
    var buffer: [max_code]u8 = undefined;
    const found: Fault![]const u8 = if (Request.parse(arena.allocator(), payload)) |request|
        request.write(&buffer)
    else |fault|
        fault;
    if (expected) |code| try testing.expectEqualStrings(code, try found) else |fault| try testing.expectError(fault, found);
}

test "the check value of CRC-16/CCITT-FALSE" {
    try testing.expectEqual(0x29B1, crc16("123456789"));
}

test "the static example of the central bank's manual" {
    try expectCode("00020126580014br.gov.bcb.pix0136123e4567-e12b-12d1-a456-426655440000520400005303986" ++
        "5802BR5913Fulano de Tal6008BRASILIA62070503***63041D3D",
        \\{"key": "123e4567-e12b-12d1-a456-426655440000", "merchant_name": "Fulano de Tal", "merchant_city": "BRASILIA"}
    );
}

test "faults" {
    try expectCode(error.InvalidJson, "");
    try expectCode(error.WrongType, "[]");
    try expectCode(error.WrongType, "{\"key\": [49, 50]}");
    try expectCode(error.MissingMember, "{\"key\": \"a@b\"}");
    try expectCode(error.PayloadTooLarge, &@as([max_input + 1]u8, @splat(' ')));
}

test "amounts" {
    for ([_][]const u8{ "0.01", "1.00", "12.34", "9999999999.99" }) |text| try testing.expect(isAmount(text));
    for ([_][]const u8{ "", ".50", "0.00", "00.10", "1", "1.0", "1,00", "-1.00", "10000000000.00" }) |text| {
        try testing.expect(!isAmount(text));
    }
}
