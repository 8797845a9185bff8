using FsCheck.Fluent;
using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// Random programs of some dozen commands, compared with a model after each command, with a walk over all pages after each checkpoint. A failure prints its
/// seed, which KV_SEED takes back, and the few commands that it needs.
/// </summary>
public sealed class ProgramTests
{
    [Fact]
    [Trait("Turn", "6")]
    public void Store_UnderAnyProgram_AgreesWithTheModel() =>
        Seeds.Run(150, random => ProgramSearch.Run(random, StoreCommands.AnyWithRequests, NewStore, model => model.Check()));

    [Fact]
    public void Pages_UnderAnyProgram_AgreeWithTheModel() =>
        Seeds.Run(50, random => ProgramSearch.Run(random, PageCommands.Any, NewPages, store => store.CheckPublished()));

    /// <summary>The mistake is made beside a store that works: a checkpoint under a reader adds a key if there is a set.</summary>
    [Fact]
    public void Smallest_OfAMistakeInAStore_HasTheCommandsThatItNeeds()
    {
        var mistaken = StoreCommands.Any.Select(command => command == StoreCommands.Checkpoint ? command with { Run = CheckpointWithAMistake } : command);
        var found = FirstFound(random => ProgramSearch.Smallest(random, mistaken, NewStore, model => model.Check()));
        Assert.Equal(3, found.Lines.Count);
        Assert.Matches("^add m[0-9]+ to s[0-2]$", Assert.Single(found.Lines, line => line.StartsWith("add", StringComparison.Ordinal)));
        Assert.Contains(StoreCommands.OpenReader.Text, found.Lines);
        Assert.Equal((StoreCommands.Checkpoint.Text, 2), (found.Lines[2], found.FailedLine));
        Assert.True(found.LinesAtFirst > found.Lines.Count);

        static void CheckpointWithAMistake(StoreModel model)
        {
            StoreCommands.Checkpoint.Run(model);
            if (model is { Readers: > 0, Sets: > 0 })
                model.Bench.Write(request => request.Put(StoreBench.Text("of nobody"), []));
        }
    }

    /// <summary>The mistake is the disk's: while there are readers, it loses pages that it has taken.</summary>
    [Fact]
    public void Smallest_OfAMistakeUnderThePages_HasTheCommandsThatItNeeds()
    {
        var found = FirstFound(random => ProgramSearch.Smallest(random, PageCommands.Any, NewPagesWithAMistake, store => store.CheckPublished()));
        Assert.InRange(found.Lines.Count, 3, 5);
        Assert.Matches(
            "^batch: (put k[0-9]+ = 0 x '.'|add m[0-9]+ to s[0-2])$", Assert.Single(found.Lines, line => line.StartsWith("batch", StringComparison.Ordinal)));
        Assert.Contains(PageCommands.OpenReader.Text, found.Lines);
        Assert.Contains(found.Lines, line => line.Contains("checkpoint", StringComparison.Ordinal));
        Assert.True(found.LinesAtFirst > found.Lines.Count);

        static ModelStore NewPagesWithAMistake()
        {
            var store = NewPages();
            store.Disk.Fault = call => call is { Operation: "Write", Offset: >= 2 * Page.Bytes } && store.Readers > 0 ? DiskFault.LostWrite : DiskFault.None;
            return store;
        }
    }

    private static StoreModel NewStore()
    {
        var model = new StoreModel(seed: 1, StoreBench.SmallOptions with { RangeLeavesMax = 2, RangeLeavesUnreadMax = 2 });
        model.Open();
        return model;
    }

    private static ModelStore NewPages() => new(new PageStoreOptions { MapBytes = 1L << 30, StepPages = 4 }) { HolePagesMin = 2 };

    /// <summary>The first program that fails, twice: what is found depends on the seed alone.</summary>
    private static FailingProgram FirstFound(Func<Random, FailingProgram?> search)
    {
        for (var seed = 1; ; seed++)
        {
            Assert.True(seed < 200, "No program has found the mistake.");
            if (search(new Random(seed)) is not { } found)
                continue;
            Assert.Equal(found.ToString(), search(new Random(seed))!.ToString());
            return found;
        }
    }
}
