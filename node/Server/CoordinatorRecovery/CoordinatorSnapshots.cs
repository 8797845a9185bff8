// Saves the coordinator's data into a directory, for the day on which it is lost: a file for each snapshot, of which the newest are kept. Called by a command
// of kv-node, by one task. Nodes only read the time of the newest one from the coordinator. A file has its name when it is complete, checked and durable, so an
// end at any point leaves at most a part, which a later snapshot deletes. An exception of the coordinator, or a cancellation, means that no snapshot was added
// or removed. A time that could not be put is none, because whoever repeats a save replaces an older snapshot.
using System.Globalization;
using System.Security.Cryptography;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.CoordinatorRecovery;

/// <summary>Takes snapshots of an etcd.</summary>
/// <param name="connect">Connects to the coordinator; disposed after each snapshot. An alarm about a store that was restored ends with its connection.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="files">The disk.</param>
/// <param name="folder">Where the snapshots are, and how many are kept.</param>
/// <param name="time">The time that names them.</param>
/// <param name="log">Receives a line for each snapshot of <see cref="RunAsync"/>.</param>
internal sealed partial class CoordinatorSnapshots(
    Func<EtcdCoordinator> connect, CoordinatorKeys keys, IFileSystem files, SnapshotFolder folder, TimeProvider time, ILogger log)
{
    private const string Prefix = "etcd-";
    private const string Suffix = ".db";
    private const string PartSuffix = ".part";
    private const string TimeForm = "yyyyMMdd'T'HHmmss'Z'";

    // etcd sends its database, which has whole pages, and then a checksum of it.
    private const int ChecksumBytes = SHA256.HashSizeInBytes;
    private const int PageBytesMin = 512;
    private const int BufferBytes = 64 << 10;

    private static readonly TimeSpan RetryPause = TimeSpan.FromSeconds(2);

    /// <summary>How long the coordinator may take to accept the time of a snapshot.</summary>
    private static readonly TimeSpan TellTimeMax = TimeSpan.FromSeconds(30);

    /// <summary>Between two attempts of the loop, each of which logs why it failed.</summary>
    private static readonly TimeSpan FailedPause = TimeSpan.FromMinutes(1);

    /// <summary>Takes one snapshot. While the coordinator does not answer, or the cluster is not created yet, it tries again.</summary>
    /// <param name="patience">For how long.</param>
    /// <param name="cancellationToken">Ends it without a file.</param>
    /// <exception cref="CoordinatorUnavailableException">No answer, nothing to save, or an answer that is damaged. Nothing was saved or deleted.</exception>
    /// <exception cref="StorageIoException">The disk refused.</exception>
    public async Task<SavedSnapshot> SaveAsync(TimeSpan patience, CancellationToken cancellationToken)
    {
        var began = time.GetTimestamp();
        while (true)
        {
            try
            {
                return await SaveAsync(cancellationToken).ConfigureAwait(false);
            }
            catch (CoordinatorUnavailableException failure)
                when (failure is not (CoordinatorDeniedException or CoordinatorLostException) && time.GetElapsedTime(began) < patience)
            {
                await Task.Delay(RetryPause, time, cancellationToken).ConfigureAwait(false);
            }
        }
    }

    /// <summary>Takes a snapshot whenever the newest one has reached an age, until cancelled.</summary>
    public async Task RunAsync(TimeSpan interval, CancellationToken stop)
    {
        while (true)
        {
            await Task.Delay(Due(interval), time, stop).ConfigureAwait(false);
            try
            {
                var saved = await SaveAsync(stop).ConfigureAwait(false);
                if (saved.Untold is { } reason)
                    SavedUntold(log, saved.Path, saved.Bytes, saved.Deleted, reason);
                else
                    Saved(log, saved.Path, saved.Bytes, saved.Deleted);
            }
            catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException or StorageIoException)
            {
                NotSaved(log, failure.Message);
                await Task.Delay(FailedPause, time, stop).ConfigureAwait(false);
            }
        }
    }

    private async Task<SavedSnapshot> SaveAsync(CancellationToken cancellationToken)
    {
        files.CreateDirectory(folder.Path);
        var coordinator = connect();
        await using (coordinator.ConfigureAwait(false))
        {
            // Snapshots of an etcd that has lost its data would take the place of the good ones. The read also makes the member catch up.
            if ((await coordinator.GetAsync(keys.Cluster, cancellationToken).ConfigureAwait(false)).Value is null)
            {
                throw Newest() is null
                    ? new CoordinatorUnavailableException(
                        $"The coordinator has no record {keys.Cluster}, so the cluster is not created yet. No snapshot was taken.")
                    : new CoordinatorLostException($"The coordinator has no record {keys.Cluster}, but there are snapshots in '{folder.Path}': "
                        + "its data is lost, or it is another etcd. No snapshot was taken, and none was deleted; "
                        + "see 'The coordinator's data is lost' in deploy/OPERATIONS.md.");
            }
            var taken = time.GetUtcNow();
            var name = NameOf(taken);
            var path = Path.Combine(folder.Path, name);
            var bytes = await ReceiveAsync(coordinator, path + PartSuffix, cancellationToken).ConfigureAwait(false);
            files.Rename(path + PartSuffix, path);
            files.SyncDirectory(folder.Path);
            var deleted = DeleteOldest(name);
            return new SavedSnapshot(path, bytes, deleted, await TellAsync(coordinator, taken, cancellationToken).ConfigureAwait(false));
        }
    }

    private async Task<long> ReceiveAsync(EtcdCoordinator coordinator, string part, CancellationToken cancellationToken)
    {
        files.Delete(part);
        try
        {
            using var file = files.Open(part, new StorageFileOptions(StorageFileMode.CreateNew));
            var bytes = 0L;
            await coordinator.SnapshotAsync(
                blob =>
                {
                    file.Write(blob.Span, bytes);
                    bytes += blob.Length;
                },
                cancellationToken).ConfigureAwait(false);
            if (!IsComplete(file, bytes))
                throw new CoordinatorUnavailableException(
                    "The coordinator's snapshot is incomplete or damaged: its checksum is wrong. Nothing was saved or deleted.");
            file.Sync();
            return bytes;
        }
        catch
        {
            files.Delete(part);
            throw;
        }
    }

    // As the restore checks it, on the day when there is no other copy.
    internal static bool IsComplete(IStorageFile file, long bytes)
    {
        if (bytes % PageBytesMin != ChecksumBytes)
            return false;
        using var hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
        var buffer = new byte[BufferBytes];
        for (var at = 0L; at < bytes - ChecksumBytes;)
        {
            var count = file.Read(buffer.AsSpan(0, (int)Math.Min(BufferBytes, bytes - ChecksumBytes - at)), at);
            if (count == 0)
                return false;
            hash.AppendData(buffer, 0, count);
            at += count;
        }
        var checksum = buffer.AsSpan(0, ChecksumBytes);
        return file.Read(checksum, bytes - ChecksumBytes) == ChecksumBytes && checksum.SequenceEqual(hash.GetHashAndReset());
    }

    // Never the one that was just taken, even if the clock was set back. Files with other names are somebody else's.
    private int DeleteOldest(string taken)
    {
        var names = files.List(folder.Path);
        var old = names.Where(name => TimeOf(name) is not null && name != taken).SkipLast(folder.Keep - 1).ToList();
        var parts = names.Where(static name => name.EndsWith(PartSuffix, StringComparison.Ordinal) && TimeOf(name[..^PartSuffix.Length]) is not null);
        foreach (var name in old.Concat(parts))
            files.Delete(Path.Combine(folder.Path, name));
        return old.Count;
    }

    // An etcd without space sends snapshots and refuses puts. If that failed the save, each attempt would add a snapshot and delete the oldest, until all were
    // of the same hour. Returns the reason for which the time was not put; null if it was.
    private async Task<string?> TellAsync(EtcdCoordinator coordinator, DateTimeOffset taken, CancellationToken cancellationToken)
    {
        using var limit = new CancellationTokenSource(TellTimeMax, time);
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken, limit.Token);
        try
        {
            while (true)
            {
                var read = await coordinator.GetAsync(keys.Snapshot, ended.Token).ConfigureAwait(false);
                var set = await coordinator.SetUntilSettledAsync(keys.Snapshot, read.ModRevision, SnapshotTime.Format(taken), 0, ended.Token)
                    .ConfigureAwait(false);
                if (set.Outcome == SetOutcome.Won)
                    return null;
            }
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException)
        {
            return failure.Message;
        }
        catch (OperationCanceledException)
        {
            return cancellationToken.IsCancellationRequested ? "This was stopped." : $"No answer came within {TellTimeMax.TotalSeconds:0} s.";
        }
    }

    private TimeSpan Due(TimeSpan interval)
    {
        files.CreateDirectory(folder.Path);
        if (Newest() is not { } newest)
            return TimeSpan.Zero;
        // A time in the future is of a clock that was set back since.
        var left = newest + interval - time.GetUtcNow();
        return left < TimeSpan.Zero || left > interval ? TimeSpan.Zero : left;
    }

    private DateTimeOffset? Newest() => files.List(folder.Path).Select(TimeOf).Max();

    private static string NameOf(DateTimeOffset taken) => Prefix + taken.ToString(TimeForm, CultureInfo.InvariantCulture) + Suffix;

    private static DateTimeOffset? TimeOf(string name) =>
        name.StartsWith(Prefix, StringComparison.Ordinal) && name.EndsWith(Suffix, StringComparison.Ordinal)
        && DateTimeOffset.TryParseExact(
            name[Prefix.Length..^Suffix.Length], TimeForm, CultureInfo.InvariantCulture, DateTimeStyles.AssumeUniversal, out var taken) ? taken : null;

    [LoggerMessage(51, LogLevel.Information, "Saved the coordinator's data in '{Path}' ({Bytes} bytes); {Deleted} older snapshots were deleted")]
    private static partial void Saved(ILogger log, string path, long bytes, int deleted);

    [LoggerMessage(54, LogLevel.Warning, "Saved the coordinator's data in '{Path}' ({Bytes} bytes); {Deleted} older snapshots were deleted. "
        + "But its time could not be put into the coordinator, so nodes take an earlier snapshot for the newest: {Reason}")]
    private static partial void SavedUntold(ILogger log, string path, long bytes, int deleted, string reason);

    [LoggerMessage(52, LogLevel.Warning, "The coordinator's data was not saved, and will be tried again: {Reason}")]
    private static partial void NotSaved(ILogger log, string reason);
}

/// <summary>A directory with snapshots.</summary>
/// <param name="Path">Where it is. Created if it is missing; its parent must exist.</param>
/// <param name="Keep">How many snapshots stay, at least one.</param>
internal sealed record SnapshotFolder(string Path, int Keep);

/// <summary>A snapshot that was taken.</summary>
/// <param name="Path">Its file.</param>
/// <param name="Bytes">The file's size.</param>
/// <param name="Deleted">How many older ones were deleted.</param>
/// <param name="Untold">Why its time is not in the coordinator; null if it is.</param>
internal sealed record SavedSnapshot(string Path, long Bytes, int Deleted, string? Untold);

/// <summary>The coordinator lacks a cluster of which there are snapshots. Waiting does not help.</summary>
internal sealed class CoordinatorLostException(string reason) : CoordinatorUnavailableException(reason);
