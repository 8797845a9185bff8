using System.Text.Json;
using System.Text.Json.Serialization;
using KvCluster.Storage.Files;

namespace KvCluster.Local;

/// <summary>
/// The data directory of a local cluster: <c>node-N/</c> of each node, <c>coordinator/</c>, <c>run/</c> (logs and process ids), <c>admin-token</c> (for the
/// console), <c>local.json</c> (the number of nodes and the shards) and <c>LOCK</c>, which a launcher holds while it runs and the system releases when it dies.
/// </summary>
/// <remarks>Opened before anything listens. A directory that cannot be used is a <see cref="LauncherException"/>.</remarks>
internal sealed class DataFolder : IDisposable
{
    private const int FormatVersion = 1;
    private static readonly JsonSerializerOptions Json = new() { PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower, WriteIndented = true };

    private readonly DirectoryLock _lock;
    private readonly Shape _shape;

    private DataFolder(string path, DirectoryLock held, Shape shape)
    {
        Path = path;
        _lock = held;
        _shape = shape;
    }

    public string Path { get; }

    public int Nodes => _shape.Nodes;

    public IReadOnlyList<string> SplitKeys => _shape.SplitAt;

    public string Run => System.IO.Path.Combine(Path, "run");

    public string Coordinator => System.IO.Path.Combine(Path, "coordinator");

    public string Node(int node) => System.IO.Path.Combine(Path, $"node-{node}");

    private string ShapeFile => ShapeFileIn(Path);

    /// <summary>Opens the directory, or creates it with the shape that the options give. An existing cluster keeps its shape.</summary>
    public static DataFolder Open(LocalOptions options)
    {
        var path = options.Folder;
        DirectoryLock held;
        try
        {
            DurableDirectory.Create(path);
            held = DirectoryLock.Take(path);
        }
        catch (DirectoryInUseException)
        {
            throw new LauncherException(
                ExitCodes.Unavailable, $"The data directory {path} is in use by another launcher. Stop that one, or choose another directory with --data.");
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException or PlatformNotSupportedException)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"The data directory {path} cannot be used: {e.Message}");
        }

        try
        {
            return new DataFolder(path, held, ReadOrMakeShape(options));
        }
        catch
        {
            held.Dispose();
            throw;
        }
    }

    /// <summary>Saves the shape. Called once nothing prevents the start, so that a refused start leaves the choice open.</summary>
    public void Keep()
    {
        if (!File.Exists(ShapeFile))
        {
            // Renamed into place, so that a crash leaves the whole file or none. Written before any subdirectory: a directory with subdirectories and no such
            // file is refused.
            File.WriteAllText(ShapeFile + ".new", JsonSerializer.Serialize(_shape, Json));
            File.Move(ShapeFile + ".new", ShapeFile, overwrite: true);
        }

        Directory.CreateDirectory(Run);
    }

    public void Dispose() => _lock.Dispose();

    private static string ShapeFileIn(string folder) => System.IO.Path.Combine(folder, "local.json");

    private static Shape ReadOrMakeShape(LocalOptions options)
    {
        var file = ShapeFileIn(options.Folder);
        if (!File.Exists(file))
        {
            if (Directory.EnumerateDirectories(options.Folder).Any())
                throw new LauncherException(ExitCodes.OtherFormat, $"The directory {options.Folder} is not empty and has no local.json, so it is not the data "
                    + "directory of a local cluster. Nothing was changed; choose another with --data.");
            return new Shape(FormatVersion, options.Nodes ?? LocalOptions.NodesDefault, options.SplitKeys ?? []);
        }

        var shape = ReadShape(file);
        if (shape.Format != FormatVersion)
            throw new LauncherException(ExitCodes.OtherFormat, $"The data directory {options.Folder} has format {shape.Format}, and this program uses format "
                + $"{FormatVersion}. Nothing was changed; choose another directory with --data.");
        if (options.Nodes is { } nodes && nodes != shape.Nodes)
            throw new LauncherException(ExitCodes.Usage, $"The data directory {options.Folder} has a cluster of {shape.Nodes} nodes. "
                + "Omit --nodes, or choose another directory with --data.");
        if (options.SplitKeys is { } keys && !keys.SequenceEqual(shape.SplitAt, StringComparer.Ordinal))
            throw new LauncherException(ExitCodes.Usage, $"The data directory {options.Folder} has a cluster of {shape.SplitAt.Count + 1} shards, split at "
                + "other keys. Omit --shards and --split-at, or choose another directory with --data.");
        return shape;
    }

    private static Shape ReadShape(string file)
    {
        try
        {
            return JsonSerializer.Deserialize<Shape>(File.ReadAllText(file), Json) ?? throw new JsonException("empty");
        }
        catch (JsonException e)
        {
            throw new LauncherException(ExitCodes.OtherFormat, $"{file} cannot be read: {e.Message}");
        }
    }

    private sealed record Shape(
        [property: JsonRequired] int Format,
        [property: JsonRequired] int Nodes,
        [property: JsonRequired] IReadOnlyList<string> SplitAt);
}
