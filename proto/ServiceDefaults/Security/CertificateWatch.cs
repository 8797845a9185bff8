// Reads a server's TLS files at intervals and logs which certificate is used, why a change is not used, and, once a day, which certificate expires soon. One
// timer, on the thread pool.
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.ServiceDefaults.Security;

/// <summary>Keeps credentials up to date until disposed.</summary>
internal sealed class CertificateWatch : IAsyncDisposable
{
    /// <summary>How often the files are read. Someone who replaces them one after the other finishes within two intervals.</summary>
    public static readonly TimeSpan Interval = TimeSpan.FromSeconds(2);

    /// <summary>How long before it expires a certificate is announced. Longer than a weekend with a holiday.</summary>
    private static readonly TimeSpan AnnouncedTime = TimeSpan.FromDays(7);

    private static readonly TimeSpan RepeatTime = TimeSpan.FromDays(1);

    private readonly CredentialFiles _files;
    private readonly ILogger _log;
    private readonly TimeProvider _time;
    private readonly ITimer _timer;
    private readonly IDisposable _shown;
    private TlsCredentials? _said;
    private string? _failureSeen;
    private string? _failureSaid;
    private DateTimeOffset _announceAt;

    public CertificateWatch(CredentialFiles files, ILogger log, TimeProvider time)
    {
        _files = files;
        _log = log;
        _time = time;
        _shown = CertificateMetrics.Show(files, time);
        SayWhatIsUsed();
        Announce();
        // Set again after each run, so that runs never overlap.
        _timer = time.CreateTimer(static state => ((CertificateWatch)state!).Turn(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        _timer.Change(Interval, Timeout.InfiniteTimeSpan);
    }

    public ValueTask DisposeAsync()
    {
        _shown.Dispose();
        return _timer.DisposeAsync();
    }

    private void Turn()
    {
        _files.Refresh();
        // Compares with what was logged, not with what this run changed, because a connection may have read the files before.
        if (!ReferenceEquals(_said, _files.Current))
        {
            SayWhatIsUsed();
            _announceAt = default;
        }
        SayFailure(_files.Failure);
        Announce();
        _timer.Change(Interval, Timeout.InfiniteTimeSpan);
    }

    private void SayWhatIsUsed()
    {
        _said = _files.Current;
        if (_said is { Own: { } own, End: { } end } current)
            SecurityLog.Uses(_log, own.Subject, current.Files.CertificateFile!, end.At);
    }

    // Logs only a failure that persists, because the files do not match between the replacement of the certificate and of its key.
    private void SayFailure(string? failure)
    {
        if (failure is not null && failure == _failureSeen && failure != _failureSaid)
            SecurityLog.NotUsed(_log, failure);
        if (failure is null || failure == _failureSeen)
            _failureSaid = failure;
        _failureSeen = failure;
    }

    private void Announce()
    {
        var now = _time.GetUtcNow();
        if (_files.Current.End is not { } end || end.At - now > AnnouncedTime || now < _announceAt)
            return;
        // The expiry itself is announced at once.
        _announceAt = now < end.At && end.At - now < RepeatTime ? end.At : now + RepeatTime;
        if (now < end.At)
            SecurityLog.EndsSoon(_log, end.File, end.At, (long)(end.At - now).TotalHours);
        else
            SecurityLog.Ended(_log, end.File, end.At);
    }
}
