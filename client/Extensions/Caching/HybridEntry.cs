using System.Buffers.Binary;
using KvCluster.Client;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// An entry of the hybrid cache, in memory and as a value in the cluster: a version, 1; whether what was cached is null, 1 or 0; the number of tags in two
/// bytes; of each tag the number of bytes of its key in two bytes, the key, and the 16 bytes of its version; and the bytes of what was cached. Numbers are
/// big-endian.
/// </summary>
/// <param name="Etag">That of the key in the cluster; none if the entry is not there.</param>
/// <param name="Tags">The tags, as they were before the entry was made.</param>
/// <param name="IsNull">Whether what was cached is null.</param>
/// <param name="Payload">The bytes of what was cached.</param>
internal sealed record HybridEntry(Etag Etag, TagVersion[] Tags, bool IsNull, ReadOnlyMemory<byte> Payload)
{
    private const int HeaderBytes = 4;
    private const int LengthBytes = 2;
    private const byte Version = 1;

    /// <summary>What was cached, if nobody can change it.</summary>
    public object? Value { get; init; }

    /// <summary>Reads a value of the cluster.</summary>
    /// <returns>Null if it is not an entry, or one of a later version.</returns>
    public static HybridEntry? Read(ReadOnlyMemory<byte> value, Etag etag)
    {
        if (value.Length < HeaderBytes || value.Span[0] != Version)
            return null;
        var tags = new TagVersion[BinaryPrimitives.ReadUInt16BigEndian(value.Span[2..])];
        var at = HeaderBytes;
        for (var index = 0; index < tags.Length; index++)
        {
            if (value.Length - at < LengthBytes)
                return null;
            var length = BinaryPrimitives.ReadUInt16BigEndian(value.Span[at..]);
            at += LengthBytes;
            if (value.Length - at < length + Etag.ByteLength)
                return null;
            tags[index] = new TagVersion(value.Slice(at, length), Etag.ReadFrom(value.Span[(at + length)..]));
            at += length + Etag.ByteLength;
        }
        return new HybridEntry(etag, tags, value.Span[1] != 0, value[at..]);
    }

    /// <summary>The entry as a value of the cluster.</summary>
    public byte[] ToValue()
    {
        var value = new byte[HeaderBytes + Tags.Sum(static tag => LengthBytes + tag.Tag.Length + Etag.ByteLength) + Payload.Length];
        (value[0], value[1]) = (Version, IsNull ? (byte)1 : (byte)0);
        BinaryPrimitives.WriteUInt16BigEndian(value.AsSpan(2), checked((ushort)Tags.Length));
        var at = HeaderBytes;
        foreach (var (tag, version) in Tags)
        {
            BinaryPrimitives.WriteUInt16BigEndian(value.AsSpan(at), (ushort)tag.Length);
            at += LengthBytes;
            tag.Span.CopyTo(value.AsSpan(at));
            at += tag.Length;
            version.WriteTo(value.AsSpan(at));
            at += Etag.ByteLength;
        }
        Payload.Span.CopyTo(value.AsSpan(at));
        return value;
    }
}

/// <summary>A tag at a moment.</summary>
/// <param name="Tag">Its key.</param>
/// <param name="Version">The etag of its key, which changes when the entries with the tag are removed; none if they never were.</param>
internal readonly record struct TagVersion(KvKey Tag, Etag Version);
