using System.Text;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>A way of making keys and values that stresses one side of the page format.</summary>
internal sealed record KeyProfile(string Name, Func<Random, byte[]> Key, Func<Random, byte[]> Value)
{
    /// <summary>Small alphabets that collide often, zero bytes that look like padding, deep paths, the longest keys, all value sizes.</summary>
    public static readonly KeyProfile[] All =
    [
        new("numbers", random => Encoding.ASCII.GetBytes($"{random.Next(20_000):d8}"), random => Bytes(random, random.Next(40))),
        new("zeros", random => Letters(random, 1 + random.Next(12), "\0\0\0\u0001\u00ff"), random => Bytes(random, random.Next(20))),
        new("paths",
            random => Encoding.ASCII.GetBytes($"files/usr/share/doc/{random.Next(30)}/package-{random.Next(40):d3}/{random.Next(9)}"),
            random => Bytes(random, random.Next(60))),
        new("long keys",
            random => [.. Letters(random, 1 + random.Next(3), "ab"), .. Enumerable.Repeat((byte)'x', random.Next(2040)),
                .. Letters(random, 1 + random.Next(5), "cde")],
            random => Bytes(random, random.Next(200))),
        new("all values",
            random => Encoding.ASCII.GetBytes($"k{random.Next(300)}"),
            random => Bytes(
                random, random.Next(6) switch { 0 => random.Next(60_000), 1 => 2040 + random.Next(20), 2 => 8100 + random.Next(100), _ => random.Next(2100) })),
        new("kilobyte values", random => Encoding.ASCII.GetBytes($"{random.Next(4_000):d6}"), random => Bytes(random, 1000 + random.Next(200))),
    ];

    /// <summary>Short values, and among them some that are divided with a short beginning, so that leaves with both are held as deltas.</summary>
    public static readonly KeyProfile Divided = new(
        "divided values",
        random => Encoding.ASCII.GetBytes($"{random.Next(2_000):d6}"),
        random => Bytes(random, random.Next(4) == 0 ? (random.Next(1, 3) * Page.Bytes) - Page.HeaderBytes + random.Next(300) : random.Next(150)));

    /// <summary>Values of all sizes, most of which can be compressed, by little or by much.</summary>
    public static readonly KeyProfile Compressible = new(
        "compressible values",
        random => Encoding.ASCII.GetBytes($"{random.Next(700):d6}{new string('x', random.Next(2) * 12)}"),
        random => Repetitive(
            random, random.Next(12) switch { 0 => random.Next(60_000), 1 => random.Next(12_000), < 4 => random.Next(256), _ => random.Next(200, 1_500) }));

    /// <summary>The names of all profiles, for theories.</summary>
    public static TheoryData<string> Names => [.. All.Select(profile => profile.Name)];

    /// <summary>Those with large entries, which take most of the time. Some tests run them in their turn, and the others with every change.</summary>
    public static TheoryData<string> NamesOfLarge => ["long keys", "all values", "kilobyte values"];

    public static TheoryData<string> NamesOfSmall => ["numbers", "zeros", "paths"];

    public static KeyProfile Of(string name) => All.Single(profile => profile.Name == name);

    private static byte[] Bytes(Random random, int count)
    {
        var bytes = new byte[count];
        random.NextBytes(bytes);
        return bytes;
    }

    /// <summary>Random bytes, of which some parts are one byte again and again.</summary>
    private static byte[] Repetitive(Random random, int count)
    {
        var bytes = Bytes(random, count);
        var often = random.Next(5);
        for (var (at, part) = (0, 0); at < count; at += part)
        {
            part = Math.Min(random.Next(1, 80), count - at);
            if (random.Next(4) < often)
                bytes.AsSpan(at, part).Fill((byte)at);
        }
        return bytes;
    }

    private static byte[] Letters(Random random, int count, string letters)
    {
        var bytes = new byte[count];
        foreach (ref var value in bytes.AsSpan())
            value = (byte)letters[random.Next(letters.Length)];
        return bytes;
    }
}
