namespace KvCluster.Cli.Shell;

/// <summary>
/// The lines of earlier shells, in a file that only its user may read, because values may be secrets. A line that begins with a space is not kept. What cannot
/// be read or written is left out: the shell is of use without it.
/// </summary>
internal sealed class ShellHistory
{
    private const int LinesMax = 1_000;

    private readonly string _path;
    private readonly List<string> _lines = [];
    private int _linesInFile;

    /// <param name="path">The file.</param>
    public ShellHistory(string path)
    {
        _path = path;
        try
        {
            string[] all = File.Exists(path) ? File.ReadAllLines(path) : [];
            _linesInFile = all.Length;
            _lines.AddRange(all.TakeLast(LinesMax));
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            // Nothing is remembered.
        }
    }

    /// <summary>The newest last.</summary>
    public IReadOnlyList<string> Lines => _lines;

    /// <summary>Where it is.</summary>
    public static string Location => Path.Combine(UserFolders.State, "history");

    /// <summary>Keeps a line, unless it is the same as the one before.</summary>
    public void Add(string line)
    {
        if (line.Length == 0 || line.StartsWith(' ') || (_lines.Count > 0 && _lines[^1] == line))
            return;
        _lines.Add(line);
        try
        {
            Directory.CreateDirectory(Path.GetDirectoryName(_path)!);
            Write();
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            // It is remembered as long as this shell runs.
        }
    }

    // Another shell may have added lines to it, which are lost only when the file has become too long.
    private void Write()
    {
        var isTooLong = ++_linesInFile > 2 * LinesMax;
        if (isTooLong)
        {
            _lines.RemoveRange(0, Math.Max(0, _lines.Count - LinesMax));
            _linesInFile = _lines.Count;
        }
        var options = new FileStreamOptions { Mode = isTooLong ? FileMode.Create : FileMode.Append, Access = FileAccess.Write, Share = FileShare.ReadWrite };
        if (!OperatingSystem.IsWindows())
            options.UnixCreateMode = UnixFileMode.UserRead | UnixFileMode.UserWrite;
        using var file = new StreamWriter(_path, options);
        foreach (var line in isTooLong ? _lines : [_lines[^1]])
            file.WriteLine(line);
    }
}
