using System.Globalization;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// A group of processes (cgroup, version 1 or 2) that together may use only so much memory, page cache included. Removed at the end, when its processes have
/// ended.
/// </summary>
internal sealed class MemoryLimit : IDisposable
{
    private const string Mount = "/sys/fs/cgroup";
    private readonly string _path;

    private MemoryLimit(string path) => _path = path;

    /// <summary>The file into which a process writes its id to join.</summary>
    public string Processes => Path.Combine(_path, "cgroup.procs");

    /// <summary>Makes the group, or returns null with the reason if that is not possible here.</summary>
    public static MemoryLimit? TryCreate(long bytes, out string reason)
    {
        reason = "";
        try
        {
            var lines = File.ReadAllLines("/proc/self/cgroup").Select(line => line.Split(':', 3)).ToArray();
            var isFirstVersion = lines.Any(line => line[1].Split(',').Contains("memory"));
            var mount = isFirstVersion ? Path.Combine(Mount, "memory") : Mount;
            var own = mount + lines.First(line => isFirstVersion ? line[1].Split(',').Contains("memory") : line[1].Length == 0)[2];
            // In a container the mount may show only the container's part of the tree.
            var limit = new MemoryLimit(Path.Combine(Directory.Exists(own) ? own : mount, $"kvcluster-benchmark-{Environment.ProcessId}"));
            if (!isFirstVersion)
                File.WriteAllText(Path.Combine(Path.GetDirectoryName(limit._path)!, "cgroup.subtree_control"), "+memory");
            Directory.CreateDirectory(limit._path);
            try
            {
                File.WriteAllText(Path.Combine(limit._path, isFirstVersion ? "memory.limit_in_bytes" : "memory.max"), bytes.ToString(CultureInfo.InvariantCulture));
                return limit;
            }
            catch
            {
                limit.Dispose();
                throw;
            }
        }
        catch (Exception failure) when (failure is IOException or UnauthorizedAccessException or InvalidOperationException)
        {
            reason = failure.Message;
            return null;
        }
    }

    /// <inheritdoc/>
    public void Dispose() => Directory.Delete(_path);
}
