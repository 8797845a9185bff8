using KvCluster.Node.Watching;
using KvCluster.Wire;

namespace KvCluster.Tests.Node.Watching;

/// <summary>Each of 200 watchers of the same range encoded the same value of 8 MiB.</summary>
public sealed class SharedMessageTests
{
    private static readonly WatchedRange Everything = new(default, default);

    [Fact]
    public void Share_ForWatchersOfTheSameRangeAndOptions_EncodesOnce()
    {
        using var bench = new WatchBench();
        var (part, encoded) = (new WatchPart(Everything, new(1, 1), new(1, 2), 0, IsOfJournal: false), 0);
        var first = bench.Hub.Share(part, 10, Encode);
        var second = bench.Hub.Share(part, 10, Encode);
        Assert.Same(first, second);
        Assert.Equal(1, encoded);
        var others = new[]
        {
            bench.Hub.Share(part with { Options = 1 }, 10, Encode), bench.Hub.Share(part with { Until = new(1, 3) }, 10, Encode),
            bench.Hub.Share(part with { Range = new WatchedRange("a"u8.ToArray(), default) }, 10, Encode),
        };
        Assert.Equal(4, encoded);
        // It stays as it is for the second one when the first one and the hub have returned it.
        first.Return();
        bench.Hub.Look();
        Assert.Equal([1, 2, 3], second.Written.ToArray());
        second.Return();
        bench.Hub.Share(part, 10, Encode).Return();
        Assert.Equal(5, encoded);
        Array.ForEach(others, static other => other.Return());

        MessageBytes Encode()
        {
            encoded++;
            var message = MessageBytes.Rent();
            message.Append([1, 2, 3]);
            return message;
        }
    }
}
