using System.Collections.Concurrent;
using KvCluster.Storage;
using Microsoft.Extensions.Logging;

namespace KvCluster.PublicTests;

/// <summary>How the journal uses the disk: as the options say, or as the disk is measured.</summary>
public sealed class DiskChoiceTests : StoreTest
{
    [Theory]
    [InlineData(true, false, 4, "")]
    [InlineData(false, true, 1, "")]
    [InlineData(true, false, null, "large records are not compressed, and up to [24] journal writes are in flight")]
    [InlineData(
        null, null, null,
        "new journal segments are (filled with zeros before they are used|only allocated), large records are (not )?compressed, and up to [24] journal")]
    [InlineData(
        null, true, 16, "new journal segments are (filled with zeros before they are used|only allocated), large records are compressed, and up to 16 journal")]
    [InlineData(false, null, 2, "new journal segments are only allocated, large records are (not )?compressed, and up to 2 journal")]
    public async Task Open_WithAnyChoice_KeepsWhatItWritesAndSaysWhatItMeasured(bool? fill, bool? compress, int? writes, string said)
    {
        var log = new Lines();
        var options = new KvStoreOptions { FillJournal = fill, CompressJournal = compress, JournalWrites = writes, Log = log };
        // As a process leaves it that ended while it measured.
        Directory.CreateDirectory(Path.Combine(Folder, ".probe"));
        if (fill is not null && compress is not null && writes is not null)
            Directory.Delete(Path.Combine(Folder, ".probe"));
        await using (var store = KvStore.Open(Folder, options))
        {
            var tree = await store.CreateTreeAsync("t");
            await store.WriteAsync(new KvBatch().Put(tree, "k"u8, new byte[1 << 20]));
        }
        Assert.False(Directory.Exists(Path.Combine(Folder, ".probe")));
        var measured = log.Texts.Where(line => line.StartsWith("As measured on the disk of", StringComparison.Ordinal)).ToArray();
        if (said.Length == 0)
            Assert.Empty(measured);
        else
            Assert.Matches(said, Assert.Single(measured));
        // The other choice reads it as well.
        await using var again = KvStore.Open(Folder, new KvStoreOptions { FillJournal = fill != true, CompressJournal = compress != true });
        using var snapshot = again.OpenSnapshot();
        Assert.Equal(1 << 20, snapshot.Get(again.Tree("t"), "k"u8)!.Length);
    }

    [Fact]
    public void Defaults_FillTheJournalDoNotCompressAndHaveTwoWritesInFlight()
    {
        var defaults = new KvStoreOptions();
        Assert.Equal((true, false, 2), (defaults.FillJournal, defaults.CompressJournal, defaults.JournalWrites));
    }

    [Theory]
    [InlineData(0)]
    [InlineData(KvStoreOptions.JournalWritesMax + 1)]
    public void Open_WithNoWritesInFlightOrTooMany_ThrowsAndMakesNothing(int writes)
    {
        Assert.Throws<ArgumentOutOfRangeException>(() => KvStore.Open(Folder, new KvStoreOptions { JournalWrites = writes }));
        Assert.False(Directory.Exists(Folder));
    }

    private sealed class Lines : ILogger
    {
        public ConcurrentQueue<string> Texts { get; } = [];

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            Texts.Enqueue(formatter(state, exception));
    }
}
