// When the certificates of a process expire. A server's files, and those with which it calls the coordinator, are shown from their first use until their
// owner is disposed. Measured on the thread that collects.
using System.Collections.Concurrent;
using System.Diagnostics.Metrics;
using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>The metric of the certificates that this process presents.</summary>
internal static class CertificateMetrics
{
    /// <summary>Name of the meter.</summary>
    public const string Name = "KvCluster.Tls";

    private static readonly ConcurrentDictionary<Shown, bool> All = new();

    /// <summary>The meter.</summary>
    public static Meter Meter { get; } = CreateMeter();

    /// <summary>Shows a certificate until the result is disposed.</summary>
    /// <param name="files">Its files. Without a certificate nothing is shown.</param>
    /// <param name="time">The clock that certificates are compared with.</param>
    public static IDisposable Show(CredentialFiles files, TimeProvider time)
    {
        var shown = new Shown(files, time);
        All.TryAdd(shown, true);
        return shown;
    }

    private static Meter CreateMeter()
    {
        var meter = new Meter(Name);
        meter.CreateObservableGauge(
            "kvcluster.tls.certificate.expiry", static () => All.Keys.SelectMany(static shown => shown.Measure()), "s",
            "Time until the certificate in that file, or one above it in its chain, expires; negative afterwards.");
        return meter;
    }

    private sealed class Shown(CredentialFiles files, TimeProvider time) : IDisposable
    {
        public IEnumerable<Measurement<double>> Measure() => files.Current.End is { } end
            ? [new Measurement<double>((end.At - time.GetUtcNow()).TotalSeconds, new KeyValuePair<string, object?>("kvcluster.file", end.File))]
            : [];

        public void Dispose() => All.TryRemove(this, out _);
    }
}
