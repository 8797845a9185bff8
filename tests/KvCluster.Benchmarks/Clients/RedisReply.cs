using System.Globalization;
using System.Text;

namespace KvCluster.Benchmarks.Clients;

/// <summary>An answer of a Redis server, in version 2 of its protocol.</summary>
/// <param name="Bytes">A value, or a status or number as its text; null: there is none, as of a key that does not exist.</param>
/// <param name="Items">The parts of an array; null: it is none.</param>
/// <param name="Error">Why the command was refused; null: it was not.</param>
internal readonly record struct RedisReply(byte[]? Bytes, RedisReply[]? Items, string? Error)
{
    private const int LineEnd = 2;

    /// <summary>Reads the answer that the bytes begin with.</summary>
    /// <param name="bytes">What was received.</param>
    /// <param name="reply">The answer.</param>
    /// <param name="length">How many bytes it has.</param>
    /// <returns>False if there are not all bytes of it yet.</returns>
    /// <exception cref="InvalidDataException">It is no answer.</exception>
    public static bool TryRead(ReadOnlySpan<byte> bytes, out RedisReply reply, out int length)
    {
        (reply, length) = (default, 0);
        var end = bytes.IndexOf("\r\n"u8);
        if (end < 1)
            return false;
        var line = bytes[1..end];
        length = end + LineEnd;
        switch ((char)bytes[0])
        {
            case '+':
            case ':':
                reply = new RedisReply(line.ToArray(), null, null);
                return true;
            case '-':
                reply = new RedisReply(null, null, Encoding.UTF8.GetString(line));
                return true;
            case '$':
                return TryReadValue(bytes, int.Parse(line, CultureInfo.InvariantCulture), ref reply, ref length);
            case '*':
                return TryReadItems(bytes, int.Parse(line, CultureInfo.InvariantCulture), ref reply, ref length);
            default:
                throw new InvalidDataException($"An answer of the Redis server begins with the byte {bytes[0]}.");
        }
    }

    // No value has the length -1.
    private static bool TryReadValue(ReadOnlySpan<byte> bytes, int valueBytes, ref RedisReply reply, ref int length)
    {
        if (valueBytes < 0)
            return true;
        if (bytes.Length < length + valueBytes + LineEnd)
            return false;
        reply = new RedisReply(bytes.Slice(length, valueBytes).ToArray(), null, null);
        length += valueBytes + LineEnd;
        return true;
    }

    private static bool TryReadItems(ReadOnlySpan<byte> bytes, int count, ref RedisReply reply, ref int length)
    {
        var items = new RedisReply[Math.Max(0, count)];
        for (var index = 0; index < items.Length; index++)
        {
            if (!TryRead(bytes[length..], out items[index], out var itemLength))
                return false;
            length += itemLength;
        }
        reply = new RedisReply(null, items, null);
        return true;
    }
}
