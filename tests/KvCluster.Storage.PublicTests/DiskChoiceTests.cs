using System.Collections.Concurrent;
using KvCluster.Storage;
using Microsoft.Extensions.Logging;

namespace KvCluster.PublicTests;

/// <summary>How the journal uses the disk: as the options say, or as the disk is measured.</summary>
public sealed class DiskChoiceTests : StoreTest
{
    [Theory]
    [InlineData(true, false, "")]
    [InlineData(false, true, "")]
    [InlineData(null, null, "new journal segments are (filled with zeros before they are used|only allocated), and large records are (not )?compressed")]
    [InlineData(null, true, "new journal segments are (filled with zeros before they are used|only allocated), and large records are compressed")]
    [InlineData(false, null, "new journal segments are only allocated, and large records are (not )?compressed")]
    public async Task Open_WithAnyChoice_KeepsWhatItWritesAndSaysWhatItMeasured(bool? fill, bool? compress, string said)
    {
        var log = new Lines();
        var options = new KvStoreOptions { FillJournal = fill, CompressJournal = compress, Log = log };
        // As a process leaves it that ended while it measured.
        Directory.CreateDirectory(Path.Combine(Folder, ".probe"));
        if (fill is not null && compress is not null)
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
    public void Defaults_FillTheJournalAndDoNotCompress() =>
        Assert.Equal((true, false), (new KvStoreOptions().FillJournal, new KvStoreOptions().CompressJournal));

    private sealed class Lines : ILogger
    {
        public ConcurrentQueue<string> Texts { get; } = [];

        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) => Texts.Enqueue(formatter(state, exception));
    }
}
