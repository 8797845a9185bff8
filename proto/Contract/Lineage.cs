using System.Buffers.Binary;
using System.Security.Cryptography;
using Google.Protobuf;

namespace KvCluster;

/// <summary>
/// The name of one history of a cluster's data: 128 random bits, chosen when the cluster is created and again when its data is restored. Etags, positions and
/// session ids belong to a lineage, and whoever names another one is refused (<c>ApiErrors.LineageChanged</c>).
/// </summary>
/// <param name="Value">The 16 bytes as a number, the first one most significant.</param>
internal readonly record struct Lineage(UInt128 Value)
{
    /// <summary>Size in messages and records.</summary>
    public const int Bytes = 16;

    /// <summary>No lineage.</summary>
    public static readonly Lineage None;

    /// <summary>The first 8 bytes, which positions and request ids carry. Never 0 for a lineage.</summary>
    public ulong Head => (ulong)(Value >> 64);

    /// <summary>A new lineage.</summary>
    public static Lineage Create()
    {
        Span<byte> bytes = stackalloc byte[Bytes];
        Lineage lineage;
        do
        {
            RandomNumberGenerator.Fill(bytes);
            lineage = new Lineage(BinaryPrimitives.ReadUInt128BigEndian(bytes));
        }
        while (lineage.Head == 0);
        return lineage;
    }

    /// <summary>Reads a field of a message or record. None if it does not hold a lineage.</summary>
    public static Lineage Read(ByteString field) =>
        field.Length == Bytes && new Lineage(BinaryPrimitives.ReadUInt128BigEndian(field.Span)) is { Head: not 0 } lineage ? lineage : None;

    /// <summary>The value of a field.</summary>
    public ByteString ToByteString()
    {
        Span<byte> bytes = stackalloc byte[Bytes];
        BinaryPrimitives.WriteUInt128BigEndian(bytes, Value);
        return ByteString.CopyFrom(bytes);
    }

    /// <summary>32 hexadecimal digits, as people read it.</summary>
    public override string ToString() => Value.ToString("x32", System.Globalization.CultureInfo.InvariantCulture);
}
