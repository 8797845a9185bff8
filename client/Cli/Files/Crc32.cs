namespace KvCluster.Cli.Files;

/// <summary>The checksum of gzip (RFC 1952, section 8).</summary>
internal static class Crc32
{
    private const uint Polynomial = 0xEDB88320;

    private static readonly uint[] Table = [.. Enumerable.Range(0, 256).Select(static index => Step((uint)index))];

    /// <param name="crc">Checksum of the preceding bytes; 0 at the beginning.</param>
    /// <param name="bytes">The next bytes.</param>
    public static uint Append(uint crc, ReadOnlySpan<byte> bytes)
    {
        crc = ~crc;
        foreach (var one in bytes)
            crc = Table[(byte)(crc ^ one)] ^ (crc >> 8);
        return ~crc;
    }

    private static uint Step(uint crc)
    {
        for (var bit = 0; bit < 8; bit++)
            crc = (crc & 1) == 0 ? crc >> 1 : (crc >> 1) ^ Polynomial;
        return crc;
    }
}
