//! Payment.CreatePix behind the two-symbol ABI of an Action. To write another one, keep this file, change the core.
//!
//! It runs in somebody else's process, confined. So it asks the kernel for memory, a page at a time, and never the
//! host's malloc; it links nothing, libc included; its stack stays under a few KiB, since the thread is not ours to
//! size; and nothing here opens, prints, spawns, handles a signal or outlives the call.

const std = @import("std");
const brcode = @import("brcode.zig");

comptime {
    const oldest: std.SemanticVersion = .{ .major = 0, .minor = 16, .patch = 0 };
    if (@import("builtin").zig_version.order(oldest) == .lt) @compileError("this needs Zig 0.16 or later");
}

/// A failed safety check is an illegal instruction: no stack trace, hence no descriptor, no /proc, and a small library.
pub const panic = std.debug.no_panic;

/// What `allascode_action_execute` returns. There is no answer unless it is `ok`.
pub const Code = enum(c_int) {
    ok = 0,
    /// A null pointer where the ABI wants an address.
    bad_call = 1,
    /// The payload is longer than `brcode.max_input`.
    payload_too_large = 2,
    /// Not JSON, not UTF-8, or followed by something.
    invalid_json = 3,
    /// Not an object, or a member is not a string (`null` stands for an absent optional member).
    wrong_type = 4,
    unknown_member = 5,
    duplicate_member = 6,
    /// `key`, `merchant_name` or `merchant_city` is absent.
    missing_member = 7,
    /// Not a CPF, CNPJ, telephone, e-mail or random key in the form the DICT keeps it. Check digits are left to the DICT.
    invalid_key = 8,
    /// Not digits, a point and two digits; or zero, with a leading zero, or above 13 characters.
    invalid_amount = 9,
    /// Empty, above 25 characters, not printable ASCII, or with a space at an end.
    invalid_merchant_name = 10,
    /// The same, above 15 characters.
    invalid_merchant_city = 11,
    /// Neither `***` nor 1 to 25 ASCII letters and digits.
    invalid_txid = 12,
    /// Empty, not printable ASCII, or with a space at an end.
    invalid_description = 13,
    /// Key and description together pass the 99 characters of the merchant account field.
    account_too_long = 14,
    out_of_memory = 15,

    fn of(fault: brcode.Fault) Code {
        return switch (fault) {
            error.PayloadTooLarge => .payload_too_large,
            error.InvalidJson => .invalid_json,
            error.WrongType => .wrong_type,
            error.UnknownMember => .unknown_member,
            error.DuplicateMember => .duplicate_member,
            error.MissingMember => .missing_member,
            error.InvalidKey => .invalid_key,
            error.InvalidAmount => .invalid_amount,
            error.InvalidMerchantName => .invalid_merchant_name,
            error.InvalidMerchantCity => .invalid_merchant_city,
            error.InvalidTxid => .invalid_txid,
            error.InvalidDescription => .invalid_description,
            error.AccountTooLong => .account_too_long,
            error.OutOfMemory => .out_of_memory,
        };
    }
};

/// Anonymous private mappings, of exactly what is asked, given back at once: friendly to RLIMIT_AS and RLIMIT_DATA.
const gpa = std.heap.page_allocator;

fn answer(payload: []const u8) brcode.Fault![]u8 {
    var arena: std.heap.ArenaAllocator = .init(gpa);
    defer arena.deinit();
    const request = try brcode.Request.parse(arena.allocator(), payload);
    var buffer: [brcode.max_code]u8 = undefined;
    return gpa.dupe(u8, try request.write(&buffer));
}

export fn allascode_action_execute(input: ?[*]const u8, input_len: usize, output: ?*?[*]u8, output_len: ?*usize) Code {
    const out = output orelse return .bad_call;
    const out_len = output_len orelse return .bad_call;
    out.* = null;
    out_len.* = 0;
    const payload = if (input) |bytes| bytes[0..input_len] else if (input_len == 0) "" else return .bad_call;
    const text = answer(payload) catch |fault| return .of(fault);
    out.* = text.ptr;
    out_len.* = text.len;
    return .ok;
}

/// `ptr` and `len` as `allascode_action_execute` gave them; a null pointer is nothing to do.
export fn allascode_action_free(ptr: ?[*]u8, len: usize) void {
    const bytes = ptr orelse return;
    std.crypto.secureZero(u8, bytes[0..len]);
    gpa.free(bytes[0..len]);
}

test {
    _ = brcode;
}

test "an answer is owned by the caller until freed, and a fault leaves none" {
    const execute = allascode_action_execute;
    const payload = "{\"key\": \"+5561912345678\", \"merchant_name\": \"Ana\", \"merchant_city\": \"Recife\"}";
    var ptr: ?[*]u8 = null;
    var len: usize = 0;
    try std.testing.expectEqual(Code.ok, execute(payload, payload.len, &ptr, &len));
    try std.testing.expectStringStartsWith(ptr.?[0..len], "00020126");
    allascode_action_free(ptr, len);

    try std.testing.expectEqual(Code.invalid_json, execute(null, 0, &ptr, &len));
    try std.testing.expectEqual(null, ptr);
    try std.testing.expectEqual(0, len);
    try std.testing.expectEqual(Code.bad_call, execute(null, 1, &ptr, &len));
    try std.testing.expectEqual(Code.bad_call, execute(payload, payload.len, null, &len));
    allascode_action_free(null, 0);
}
