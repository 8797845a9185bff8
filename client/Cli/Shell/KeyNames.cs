using KvCluster.Client;

namespace KvCluster.Cli.Shell;

/// <summary>
/// Keys that begin as a word does, up to the next slash, as file names are completed. Each is found by a short read, so it makes no difference how many keys
/// are below it. Keys that a line of the shell could not have as they are, are left out. The client is made when it is first needed.
/// </summary>
/// <param name="connect">Makes the client.</param>
/// <param name="limit">How long whoever types may wait; null: two seconds.</param>
internal sealed class KeyNames(Func<KvClient> connect, TimeSpan? limit = null) : IAsyncDisposable
{
    private const int NamesMax = 50;
    private const byte Slash = (byte)'/';

    private static readonly TimeSpan LimitDefault = TimeSpan.FromSeconds(2);

    private KvClient? _client;

    /// <summary>The names, in order; none if the cluster does not answer at once.</summary>
    public async Task<IReadOnlyList<string>> FindAsync(string begin)
    {
        var names = new List<string>();
        using var ended = new CancellationTokenSource(limit ?? LimitDefault);
        try
        {
            var prefix = Text.ToBytes(begin);
            var start = prefix;
            while (names.Count < NamesMax && await FirstAsync(prefix, start, ended.Token) is { } key)
            {
                var name = NameOf(key, prefix.Length);
                if (Text.FromBytes(name.Span) is { } text && IsPlain(text))
                    names.Add(text);
                start = Behind(name.Span);
            }
        }
        catch (Exception e) when (e is KvException or CliException or OperationCanceledException)
        {
            // Whoever types has not asked for anything yet. The command itself tells what is wrong.
        }
        return names;
    }

    public ValueTask DisposeAsync() => _client?.DisposeAsync() ?? default;

    /// <summary>A key up to the first slash behind a prefix, which is a part of it; the whole key if there is none.</summary>
    internal static ReadOnlyMemory<byte> NameOf(ReadOnlyMemory<byte> key, int prefixLength)
    {
        var slash = key.Span[prefixLength..].IndexOf(Slash);
        return slash < 0 ? key : key[..(prefixLength + slash + 1)];
    }

    /// <summary>The first key that is not the name itself and, if it ends with a slash, not below it.</summary>
    internal static ReadOnlyMemory<byte> Behind(ReadOnlySpan<byte> name) => name[^1] == Slash ? [.. name[..^1], Slash + 1] : (byte[])[.. name, 0];

    private static bool IsPlain(string name) => OneLine.Is(name) && name.AsSpan().IndexOfAny(" '\"\\$") < 0;

    private async Task<ReadOnlyMemory<byte>?> FirstAsync(ReadOnlyMemory<byte> prefix, ReadOnlyMemory<byte> start, CancellationToken stop)
    {
        var scan = new KvScan { Prefix = prefix, Start = start, Limit = 1, KeysOnly = true };
        await foreach (var entry in (_client ??= connect()).ScanAsync(scan, stop))
            return entry.Key.Memory;
        return default;
    }
}
