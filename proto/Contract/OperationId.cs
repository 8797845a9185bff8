using System.Diagnostics.CodeAnalysis;
using System.Globalization;

namespace KvCluster;

/// <summary>
/// The id of an operation: a random number, and the shard whose leader executes it, by which clients, routers and nodes find that leader. Callers take its text
/// as it is.
/// </summary>
/// <param name="Shard">The shard.</param>
/// <param name="Number">Random, not 0. The shard's record has it too.</param>
internal readonly record struct OperationId(ShardId Shard, ulong Number)
{
    /// <summary>Reads the text of an id.</summary>
    public static bool TryParse([NotNullWhen(true)] string? text, out OperationId id)
    {
        id = default;
        if (text?.Split('-') is not [var shard, { Length: 16 } number]
            || !uint.TryParse(shard, NumberStyles.None, CultureInfo.InvariantCulture, out var parsedShard)
            || !ulong.TryParse(number, NumberStyles.AllowHexSpecifier, CultureInfo.InvariantCulture, out var parsedNumber))
        {
            return false;
        }
        id = new OperationId(new(parsedShard), parsedNumber);
        return true;
    }

    /// <summary>The text: the shard, and 16 hexadecimal digits.</summary>
    public override string ToString() => string.Create(CultureInfo.InvariantCulture, $"{Shard}-{Number:x16}");
}
