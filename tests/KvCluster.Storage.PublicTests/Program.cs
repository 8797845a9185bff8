// The other process of the tests, started with `dotnet exec` on the tests' own assembly, and the program of tests/nightly/beyond-memory.
using System.Buffers.Binary;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

internal static class Program
{
    /// <summary>
    /// "hold DIRECTORY": opens the store, says so, and keeps it open. "write DIRECTORY": also writes until it is killed, and prints the number of each
    /// acknowledged write. "try DIRECTORY": opens and closes it, and prints "open", or the type and the message of the exception. Others: see
    /// <see cref="BeyondMemory"/>.
    /// </summary>
    public static Task<int> Main(string[] arguments) => arguments[0] switch
    {
        BeyondMemory.Command => BeyondMemory.RunAsync(arguments),
        BeyondMemory.LimitedCommand => BeyondMemory.RunLimitedAsync(arguments),
        "try" => TryAsync(arguments[1]),
        _ => KeepAsync(arguments[0], arguments[1]),
    };

    private static async Task<int> TryAsync(string directory)
    {
        try
        {
            await KvStore.Open(directory).DisposeAsync();
            Console.WriteLine("open");
        }
        catch (Exception refused) when (refused is KvStoreException or PlatformNotSupportedException)
        {
            Console.WriteLine($"{refused.GetType().Name}: {refused.Message}");
        }
        return 0;
    }

    private static async Task<int> KeepAsync(string command, string directory)
    {
        await using var store = KvStore.Open(directory);
        var tree = await store.CreateTreeAsync("numbers");
        Console.WriteLine("open");
        if (command == "write")
            await Task.WhenAll(Enumerable.Range(0, 8).Select(writer => WriteAsync(store, tree, writer)));
        else
            await Task.Delay(Timeout.Infinite);
        return 0;
    }

    private static async Task WriteAsync(KvStore store, KvTree tree, int writer)
    {
        for (var number = writer; ; number += 8)
        {
            await store.WriteAsync(Numbered(tree, number));
            Console.WriteLine(number);
        }
    }

    /// <summary>The key of a numbered write. Another one follows it, with a byte more.</summary>
    public static byte[] KeyOf(int number)
    {
        var key = new byte[sizeof(int)];
        BinaryPrimitives.WriteInt32BigEndian(key, number);
        return key;
    }

    private static KvBatch Numbered(KvTree tree, int number)
    {
        var key = KeyOf(number);
        return new KvBatch().Put(tree, key, new byte[200]).Put(tree, [.. key, 1], new byte[100]);
    }
}
