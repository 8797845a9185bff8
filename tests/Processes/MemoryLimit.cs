using System.Globalization;

namespace KvCluster.Processes;

/// <summary>
/// A group of processes (cgroup, version 1 or 2) that together may use only so much memory, page cache included. Benchmarks and tests of data larger than
/// memory make one and start a program in it. Removed at the end, when its processes have ended.
/// </summary>
internal sealed class MemoryLimit : IDisposable
{
    private const string Mount = "/sys/fs/cgroup";
    private const string Members = "cgroup.procs";
    private const string ControlledInChildren = "cgroup.subtree_control";
    private const string Memory = "memory";
    private const string This = "0";
    private const string KillCount = "oom_kill";
    private readonly string _path;
    private readonly bool _isFirstVersion;

    // The group that this process left for a child of it; null if it left none.
    private readonly string? _home;

    private MemoryLimit(string path, string? home, bool isFirstVersion) => (_path, _home, _isFirstVersion) = (path, home, isFirstVersion);

    /// <summary>The file into which a process writes its id to join.</summary>
    public string Processes => Path.Combine(_path, Members);

    /// <summary>How many processes of the group the system has ended because it found no memory for them.</summary>
    public long Kills => File.ReadLines(Path.Combine(_path, _isFirstVersion ? "memory.oom_control" : "memory.events")).Select(static line => line.Split(' '))
        .Where(static words => words[0] == KillCount).Select(static words => long.Parse(words[1], CultureInfo.InvariantCulture)).FirstOrDefault();

    private static string Name => $"kvcluster-{Environment.ProcessId}";

    /// <summary>Makes the group, or returns null with the reason if that is not possible here.</summary>
    public static MemoryLimit? TryCreate(long bytes, out string reason)
    {
        reason = "";
        try
        {
            var lines = File.ReadAllLines("/proc/self/cgroup").Select(line => line.Split(':', 3)).ToArray();
            var isFirstVersion = lines.Any(line => line[1].Split(',').Contains(Memory));
            var mount = isFirstVersion ? Path.Combine(Mount, Memory) : Mount;
            var own = mount + lines.First(line => isFirstVersion ? line[1].Split(',').Contains(Memory) : line[1].Length == 0)[2].TrimEnd('/');
            // In a container the mount may show only the container's part of the tree.
            if (!Directory.Exists(own))
                own = mount;
            string? home = null;
            var parent = isFirstVersion ? own : FindParent(own, out home);
            var limit = new MemoryLimit(Path.Combine(parent, Name), home, isFirstVersion);
            try
            {
                Directory.CreateDirectory(limit._path);
                File.WriteAllText(
                    Path.Combine(limit._path, isFirstVersion ? "memory.limit_in_bytes" : "memory.max"), bytes.ToString(CultureInfo.InvariantCulture));
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
    public void Dispose()
    {
        if (Directory.Exists(_path))
            Directory.Delete(_path);
        if (_home is null)
            return;
        File.WriteAllText(Path.Combine(_home, ControlledInChildren), $"-{Memory}");
        GoHome(_home);
    }

    // The group of version 2 in which a limited one can be made. A group with processes of its own cannot limit its children, so it is the group above, if that
    // has limited ones already, or this process goes into a child of its group.
    private static string FindParent(string own, out string? home)
    {
        home = null;
        foreach (var group in (string[])[own, Path.GetDirectoryName(own)!])
        {
            var controlled = Path.Combine(group, ControlledInChildren);
            if (File.Exists(controlled) && File.ReadAllText(controlled).Split().Contains(Memory))
                return group;
        }
        Directory.CreateDirectory(Inner(own));
        try
        {
            File.WriteAllText(Path.Combine(Inner(own), Members), This);
            File.WriteAllText(Path.Combine(own, ControlledInChildren), $"+{Memory}");
            home = own;
            return own;
        }
        catch
        {
            GoHome(own);
            throw;
        }
    }

    private static void GoHome(string home)
    {
        File.WriteAllText(Path.Combine(home, Members), This);
        Directory.Delete(Inner(home));
    }

    private static string Inner(string group) => Path.Combine(group, $"{Name}-self");
}
