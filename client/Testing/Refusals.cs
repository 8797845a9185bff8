using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>What calls are refused with: the reasons of the cluster, so that a program sees the same exceptions. Nothing is applied then.</summary>
internal static class Refusals
{
    public static KvInvalidRequestException KeyEmpty() => new("KEY_EMPTY", "A key has at least one byte.");

    public static KvInvalidRequestException KeyTooLong() => new("KEY_TOO_LONG", $"A key has at most {KvLimits.KeyBytesMax:N0} bytes.");

    public static KvInvalidRequestException BoundTooLong() =>
        new("KEY_TOO_LONG", $"The start or end of a range has at most {KvLimits.BoundBytesMax:N0} bytes: a key and one more.");

    public static KvInvalidRequestException ValueTooLarge() => new("VALUE_TOO_LARGE", $"A value has at most {KvLimits.ValueBytesMax:N0} bytes.");

    public static KvInvalidRequestException MemberEmpty() => new("MEMBER_EMPTY", "A member of a set has at least one byte.");

    public static KvInvalidRequestException MemberTooLong() =>
        new("MEMBER_TOO_LONG", $"A member of a set has at most {KvLimits.MemberBytesMax:N0} bytes, and the start of a range of members one more.");

    public static KvInvalidRequestException WriteTooLarge() => new("WRITE_TOO_LARGE", $"A write has at most {KvLimits.WriteBytesMax:N0} bytes.");

    public static KvInvalidRequestException TooManyOperations(int most) =>
        new("TOO_MANY_OPERATIONS", $"A request like this one has at most {most:N0} keys, members, conditions or operations. Nothing was applied.");

    public static KvInvalidRequestException BadRequest(string message) => new("BAD_REQUEST", message);

    public static KvShardsDifferException ShardsDiffer(uint first, uint other) => new(DividedKeys.Text(new(first), new(other)), [first, other]);

    public static KvException NotANumber() => new(
        "NOT_A_NUMBER", "A key that is incremented does not have the decimal text of a signed 64-bit number as its value. Nothing was applied.");

    public static KvException NumberOverflow() =>
        new("NUMBER_OVERFLOW", "A number would not fit into 64 bits after the increment. Nothing was applied.");

    public static KvNoOwnerException NoOwner() =>
        new("The session that is to own a key does not exist in the shard of the key, or has ended. Nothing was applied; open a session.");

    public static KvException TooManyOwned() => new("TOO_MANY_OWNED", "A session owns at most 10,000 keys of 2 MiB together. Nothing was applied; "
        + "use several sessions.");

    public static KvException RangeTooLarge() =>
        new("RANGE_TOO_LARGE", "The ranges have too many keys to be read for a condition, or the values of the keys that are touched are too large together. "
            + "Nothing was applied; name smaller ranges, or touch fewer keys.");

    public static KvException ResultsTooLarge(int most) => new(
        "ANSWER_TOO_LARGE", $"What the request reads has more than {most:N0} bytes. Nothing was applied; read less.");

    public static KvSnapshotTooOldException SnapshotNotKept() => new("The snapshot of the token is not kept any more. The entries received are valid; "
        + "begin again without the token, or continue after the last entry in a newer snapshot.");

    public static KvConditionFailedException ConditionFailed(int index, ShardPosition position) =>
        new($"Condition {index + 1} of the request does not hold. Nothing was applied; read what it is about and decide anew.", index, position);

    public static KvLineageChangedException LineageChanged() => new(
        "The request names a position of another history of the data, such as that of another client in memory. Nothing was applied; read again without it.",
        ChangeOutcome.NotApplied);
}
