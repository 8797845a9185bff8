using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Which checkpoint placed a page.</summary>
public sealed class PageBirthsTests
{
    private readonly PageBirths _births = new();

    [Fact]
    public void Of_PagesOfManyCheckpoints_KnowsTheNewestAndForgetsTheOldest()
    {
        const int Checkpoints = 10_000;
        _births.Reserve(3 * Checkpoints);
        for (var checkpoint = 1; checkpoint <= Checkpoints; checkpoint++)
        {
            _births.Begin(Born(checkpoint));
            _births.Place(new PageRun(3L * (checkpoint - 1), 2));
            Assert.Equal(Born(checkpoint), _births.Of(3L * (checkpoint - 1)));
        }
        for (var checkpoint = 1; checkpoint <= Checkpoints; checkpoint++)
        {
            var known = Checkpoints - checkpoint < 4_096 ? Born(checkpoint) : default;
            var first = 3L * (checkpoint - 1);
            Assert.Equal((known, known, default(PageBirth)), (_births.Of(first), _births.Of(first + 1), _births.Of(first + 2)));
        }
    }

    // Each store took 64 KiB for checkpoints that it did not write, and another 128 KiB with its first one: 15 MB of an idle node with 100 shards.
    [Fact]
    public void Begin_InASmallStoreWithFewCheckpoints_TakesLittleMemory()
    {
        var allocated = Allocations.Of(static () =>
        {
            var births = new PageBirths();
            births.Reserve(16);
            births.Begin(Born(1));
            births.Place(new PageRun(2, 4));
        });
        Assert.InRange(allocated, 0, (8 << 10) + Allocations.Context);
    }

    private static PageBirth Born(int checkpoint) => new((ulong)checkpoint, (ulong)checkpoint);
}
