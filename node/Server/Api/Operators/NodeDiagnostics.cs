// Examines what a node depends on, when an operator asks: the disk under its data, the coordinator, its certificates, the process's limits. Called on any
// thread. One examination runs at a time. Within some seconds of the last one its findings are returned instead, because each examination syncs a file and
// anybody may ask. What cannot be examined is reported in the answer and is not an exception.
using System.Globalization;
using KvCluster.Admin.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Placement;
using KvCluster.Node.Runtime;
using KvCluster.Node.Telemetry;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Tls;

namespace KvCluster.Node.Api.Operators;

/// <summary>Examines a node's environment.</summary>
/// <param name="dataDirectory">A directory on the disk to measure.</param>
/// <param name="files">Writes a file there.</param>
/// <param name="certificates">Null if the node does not use TLS.</param>
internal sealed class NodeDiagnostics(
    NodeIdentity identity, string dataDirectory, IFileSystem files, ICoordinator coordinator, CredentialFiles? certificates, TimeProvider time)
{
    private const int SyncCount = 7;
    private const int BlockBytes = 4_096;

    /// <summary>Short, so that the disk is measured, too, before an operator who waits five seconds gives up.</summary>
    private static readonly TimeSpan CoordinatorLimit = TimeSpan.FromSeconds(3);

    /// <summary>How long findings are reused. An operator sees no difference, and a thousand callers cost as much as one.</summary>
    private static readonly TimeSpan FoundTimeMax = TimeSpan.FromSeconds(5);

    private readonly SemaphoreSlim _turn = new(1);
    private NodeExamination? _found;
    private long _foundTimestamp;

    /// <summary>Knows whether the node's threads stalled; null if nothing watches.</summary>
    public StallWatch? Stalls { get; init; }

    /// <summary>The memory of the node's stores; null if there are none.</summary>
    public MemoryAccount? Memory { get; init; }

    /// <summary>The copies of replicas that were set aside; null if there is no data directory of a running node.</summary>
    public CopyRelease? Copies { get; init; }

    /// <summary>Why the node does not follow the coordinator, although it answers; null if it does.</summary>
    public Func<string?> CoordinatorRefusal { get; init; } = static () => null;

    public async Task<NodeExamination> ExamineAsync(CancellationToken cancellationToken)
    {
        await _turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            if (_found is null || time.GetElapsedTime(_foundTimestamp) >= FoundTimeMax)
                _found = await ExamineNowAsync(cancellationToken).ConfigureAwait(false);
            var told = _found.Clone();
            // The caller compares it with its own clock, so it must be current.
            told.ClockUs = MicrosecondsOf(time.GetUtcNow());
            return told;
        }
        finally
        {
            _turn.Release();
        }
    }

    private async Task<NodeExamination> ExamineNowAsync(CancellationToken cancellationToken)
    {
        var found = new NodeExamination { NodeId = identity.Node, Address = identity.Address, Version = ProgramVersion.Full };
        await ExamineCoordinatorAsync(found, cancellationToken).ConfigureAwait(false);
        await Task.Run(() => ExamineDisk(found), cancellationToken).ConfigureAwait(false);
        await Task.Run(() => ExamineCopies(found), cancellationToken).ConfigureAwait(false);
        ExamineCertificates(found);
        ExamineOpenFiles(found);
        if (Stalls?.Last is { } stall)
            (found.Stalls, found.StallUs, found.StallAtUs, found.StallText) =
                ((ulong)stall.Count, (ulong)stall.Length.TotalMicroseconds, MicrosecondsOf(stall.At), stall.Text);
        if (Memory is { } memory)
            found.Memory = MemoryReport.Of(memory);
        _foundTimestamp = time.GetTimestamp();
        return found;
    }

    private async Task ExamineCoordinatorAsync(NodeExamination found, CancellationToken cancellationToken)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        limit.CancelAfter(CoordinatorLimit);
        var begun = time.GetTimestamp();
        try
        {
            await coordinator.GetAsync(new CoordinatorKeys(identity.Cluster).Cluster, limit.Token).ConfigureAwait(false);
            found.CoordinatorUs = (ulong)time.GetElapsedTime(begun).TotalMicroseconds;
            found.CoordinatorRefusal = CoordinatorRefusal() ?? "";
        }
        catch (CoordinatorAlarmException alarm)
        {
            // The coordinator answers, but its store is not the one from before.
            found.CoordinatorRefusal = CoordinatorRefusal() ?? alarm.Message;
        }
        catch (CoordinatorUnavailableException failure)
        {
            found.CoordinatorError = failure.Message;
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            found.CoordinatorError = $"no answer within {CoordinatorLimit.TotalSeconds} s";
        }
    }

    private void ExamineDisk(NodeExamination found)
    {
        var path = Path.Combine(dataDirectory, "examined");
        try
        {
            var drive = new DriveInfo(dataDirectory);
            (found.DiskFreeBytes, found.DiskBytes) = ((ulong)drive.AvailableFreeSpace, (ulong)drive.TotalSize);
            var took = SyncTimes(path).Order().ToArray();
            (found.SyncUs, found.SyncUsMax) = ((ulong)took[took.Length / 2].TotalMicroseconds, (ulong)took[^1].TotalMicroseconds);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            found.DiskError = failure.Message;
        }
    }

    private void ExamineCopies(NodeExamination found)
    {
        try
        {
            foreach (var (copy, bytes, kept) in Copies?.Describe() ?? [])
                found.Aside.Add(new AsideCopy { Name = copy.Name, Shard = copy.Shard.Value, Bytes = (ulong)bytes, KeptBecause = kept });
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // The copies are being deleted at the moment, or the disk is missing, which ExamineDisk reports.
        }
    }

    private List<TimeSpan> SyncTimes(string path)
    {
        var took = new List<TimeSpan>(SyncCount);
        // A process that died during this measurement has left the file.
        files.Delete(path);
        try
        {
            using var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));
            var block = new byte[BlockBytes];
            for (var index = 0; index < SyncCount; index++)
            {
                var begun = time.GetTimestamp();
                file.Write(block, (long)index * BlockBytes);
                file.Sync();
                took.Add(time.GetElapsedTime(begun));
            }
            return took;
        }
        finally
        {
            // The file is deleted even if a write failed: on a full disk its space is missed most.
            files.Delete(path);
        }
    }

    private void ExamineCertificates(NodeExamination found)
    {
        if (certificates?.Current.End is { } end)
            (found.CertificateEndsUs, found.CertificateFile) = (MicrosecondsOf(end.At), end.File);
        found.CertificateError = certificates?.Failure ?? "";
    }

    private static void ExamineOpenFiles(NodeExamination found)
    {
        if (!OperatingSystem.IsLinux())
            return;
        const string label = "Max open files";
        try
        {
            if (File.ReadLines("/proc/self/limits").FirstOrDefault(line => line.StartsWith(label, StringComparison.Ordinal)) is not { } line)
                return;
            var limit = line[label.Length..].TrimStart().Split(' ')[0];
            found.OpenFiles = (ulong)Directory.EnumerateFileSystemEntries("/proc/self/fd").LongCount();
            found.OpenFilesMax = limit == "unlimited" ? ulong.MaxValue : ulong.Parse(limit, CultureInfo.InvariantCulture);
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException)
        {
            // In a container without /proc nothing is known of open files, which is reported as 0 of 0.
        }
    }

    private static long MicrosecondsOf(DateTimeOffset moment) => (moment - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond;
}
