using System.Diagnostics.Metrics;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.Storage.Context;

namespace KvCluster.Tests.Telemetry;

/// <summary>The metrics of the stores' memory have what the account says, each use under its own name.</summary>
public sealed class MemoryMetricTests
{
    private const long Budget = 1L << 30;

    [Fact]
    public async Task UsedSizes_ByUse_AreThoseOfTheAccount()
    {
        await using var metrics = new NodeMetrics(new NodeIdentity("local", "", new(1), 1, ""), shardSeriesMax: 1);
        Assert.All(Read(metrics), measured => Assert.Equal(0, measured.Value));
        var time = new ManualTime();
        var account = new MemoryAccount(Budget, time);
        metrics.Stores = account;
        using (var share = account.Join(static () => { }, static () => false))
        using (var other = account.Join(static () => { }, static () => false))
        {
            share.Set(MemoryUse.ChangedPages, 1_000);
            share.Set(MemoryUse.ReaderPages, 2_000);
            share.Set(MemoryUse.DigestPages, 2_500);
            share.Set(MemoryUse.FreePages, 3_000);
            share.Set(MemoryUse.Journal, 4_000);
            share.Set(MemoryUse.JournalIndex, 5_000);
            other.Set(MemoryUse.ChangedPages, 50);
            account.RequestsChanged(0, 1 << 20);
            share.Hold(TimeSpan.FromSeconds(2));
            other.Hold(TimeSpan.FromSeconds(1));
            var read = Read(metrics);
            Assert.Equal(
                new Dictionary<string, double>
                {
                    ["changed_pages"] = 1_050, ["reader_pages"] = 2_000,
                    ["digest_pages"] = 2_500, ["free_pages"] = 3_000, ["journal"] = 4_000, ["journal_index"] = 5_000, ["requests"] = 1 << 20,
                    ["budget"] = Budget, ["held"] = 3,
                },
                read);
            Assert.Equal(account.Used, read.Where(measured => measured.Key is not ("budget" or "held")).Sum(measured => measured.Value));
        }
        account.RequestsChanged(1 << 20, 0);
        Assert.All(Read(metrics).Where(measured => measured.Key is not ("budget" or "held")), measured => Assert.Equal(0, measured.Value));
    }

    private static Dictionary<string, double> Read(NodeMetrics metrics)
    {
        var found = new Dictionary<string, double>();
        using var listener = new MeterListener
        {
            InstrumentPublished = (instrument, listens) =>
            {
                if (ReferenceEquals(instrument.Meter, metrics.Meter) && instrument.Name.StartsWith("kvcluster.node.memory.", StringComparison.Ordinal))
                    listens.EnableMeasurementEvents(instrument);
            },
        };
        listener.SetMeasurementEventCallback<long>((instrument, value, tags, _) => found.Add(NameOf(instrument, tags), value));
        listener.SetMeasurementEventCallback<double>((instrument, value, tags, _) => found.Add(NameOf(instrument, tags), value));
        listener.Start();
        listener.RecordObservableInstruments();
        return found;
    }

    private static string NameOf(Instrument instrument, ReadOnlySpan<KeyValuePair<string, object?>> tags) =>
        tags.Length == 1 ? $"{tags[0].Value}" : instrument.Name.Split('.')[^2];
}
