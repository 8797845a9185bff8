namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// Keys and values of one caller or thread, the same for every engine: keys of 16 bytes in the order of their numbers, and values that cannot be compressed.
/// </summary>
internal sealed class EngineData
{
    public const int KeyBytes = 16;
    public const int ValueBytes = 100;

    /// <summary>Numbers of keys are less than this.</summary>
    public const ulong NumbersMax = 1_000_000_000_000;

    private const int Digits = 12;
    private const int NoiseBytes = 1 << 20;
    private static readonly byte[] Noise = MakeNoise();
    private readonly byte[] _key = "key-000000000000"u8.ToArray();
    private ulong _state;

    public EngineData(int seed)
    {
        _state = (ulong)seed;
        Next();
    }

    /// <summary>The key of a number, valid until the next call.</summary>
    public ReadOnlySpan<byte> Key(ulong number)
    {
        for (var index = KeyBytes - 1; index >= KeyBytes - Digits; index--)
        {
            var rest = number / 10;
            _key[index] = (byte)('0' + (number - (rest * 10)));
            number = rest;
        }
        return _key;
    }

    /// <summary>The key of a random number less than this.</summary>
    public ReadOnlySpan<byte> RandomKey(ulong numbers) => Key(Next() % numbers);

    /// <summary>A random value.</summary>
    public ReadOnlySpan<byte> Value(int bytes = ValueBytes) => Noise.AsSpan((int)(Next() % (ulong)(NoiseBytes - bytes)), bytes);

    // splitmix64
    private ulong Next()
    {
        var mixed = _state += 0x9E37_79B9_7F4A_7C15;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB;
        return mixed ^ (mixed >> 31);
    }

    private static byte[] MakeNoise()
    {
        var bytes = new byte[NoiseBytes];
        new Random(1).NextBytes(bytes);
        return bytes;
    }
}
