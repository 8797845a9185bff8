namespace KvCluster.Cli.Files;

/// <summary>
/// Reads records from a file or standard input, one per line: key, tab, value, without escapes, or what `kv export` prints (<see cref="ExportLine"/>,
/// <see cref="EntryLine"/>), which the first line tells, because it has no tab. A byte order mark and carriage returns, which editors and Windows add, would
/// become part of a key or of values unseen, so they are refused unless the caller says what they are (<see cref="TsvText"/>). Gzip is recognized by its first
/// bytes and decompressed. One caller at a time. A line that is not a record is a <see cref="CliException"/> with its number, after the records before it were
/// returned. So is an incomplete gzip file, and nothing of the line in which it breaks off is returned.
/// </summary>
internal sealed class RecordReader : IDisposable
{
    private const int ChunkBytes = 1 << 20;
    private const int ReadBytesMin = 1 << 12;
    private const int RecordBytesMax = KvLimits.KeyBytesMax + 1 + KvLimits.ValueBytesMax;

    // JSON may have six bytes for one, and names besides.
    private const int EncodedBytesMax = (6 * RecordBytesMax) + (1 << 10);
    private const byte Tab = (byte)'\t';
    private const byte NewLine = (byte)'\n';
    private const byte CarriageReturn = (byte)'\r';

    private readonly string _name;
    private readonly TsvText _text;
    private readonly bool _isGzipByName;
    private readonly Stream _file;
    private Stream? _stream;
    private Task<int> _reading = Task.FromResult(0);
    private byte[] _chunk = [];
    private int _start;
    private int _end;
    private bool _isAtEnd;
    private RecordForm _form;

    private RecordReader(string name, Stream file, TsvText text)
    {
        _name = name;
        _text = text;
        _isGzipByName = name.EndsWith(".gz", StringComparison.OrdinalIgnoreCase);
        _file = file;
    }

    /// <summary>Lines read so far.</summary>
    public long Lines { get; private set; }

    /// <summary>Lines read so far without the first one of an export, which is no record.</summary>
    public long Records => Lines - (_form == RecordForm.Export ? 1 : 0);

    /// <summary>Whether records may say how long their keys live. Known when the first line was read.</summary>
    public bool MayHaveLives => _form != RecordForm.Plain;

    /// <summary>How much of the file has been read, from 0 to 1; null if its length is not known.</summary>
    public double? Fraction => _file is FileStream { CanSeek: true, Length: > 0 } file ? (double)file.Position / file.Length : null;

    private static ReadOnlySpan<byte> ByteOrderMark => "\uFEFF"u8;

    /// <param name="path">A file, or "-" for standard input.</param>
    /// <param name="text">What becomes of a byte order mark and of carriage returns.</param>
    /// <exception cref="CliException">It cannot be opened.</exception>
    public static RecordReader Open(string path, TsvText text = TsvText.Plain)
    {
        if (path == "-")
            return new RecordReader("standard input", StandardInput.Open(), text);
        try
        {
            ValueFile.RefuseDirectory(path);
            return new RecordReader(
                path, new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite, ChunkBytes, FileOptions.SequentialScan), text);
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            throw new CliException(ExitCodes.Usage, $"{path} cannot be read: {e.Message}");
        }
    }

    /// <summary>
    /// Returns the next record; null at the end. <paramref name="stop"/> ends the wait for a pipe or a terminal; afterwards only disposal is allowed.
    /// </summary>
    /// <exception cref="CliException">The line is not a record, or the file cannot be read.</exception>
    public async ValueTask<FileRecord?> ReadAsync(CancellationToken stop)
    {
        if (await ReadLineAsync(stop) is not { } line)
            return null;
        Count(line.Span);
        if (_text != TsvText.Raw)
            line = WithoutMarks(line);
        return _form == RecordForm.Export && Lines == 1 ? await ReadAsync(stop) : Checked(Parse(line));
    }

    /// <summary>Skips lines without parsing them.</summary>
    public async Task SkipAsync(long lines, CancellationToken stop)
    {
        while (Lines < lines && await ReadLineAsync(stop) is { } line)
            Count(line.Span);
    }

    // The first line of an export has no tab, which makes it no record of a plain file, and neither has a document in JSON.
    private void Count(ReadOnlySpan<byte> line)
    {
        if (++Lines > 1)
            return;
        if (line.StartsWith(ByteOrderMark))
            line = line[ByteOrderMark.Length..];
        line = line.TrimEnd(CarriageReturn);
        if (line.Contains(Tab))
            return;
        _form = line.SequenceEqual(ExportLine.Header) ? RecordForm.Export : line is [(byte)'{', ..] ? RecordForm.Json : RecordForm.Plain;
    }

    private FileRecord Parse(ReadOnlyMemory<byte> line)
    {
        try
        {
            return _form switch
            {
                RecordForm.Export => ExportLine.Parse(Lines, line),
                RecordForm.Json => EntryLine.Parse(Lines, line),
                _ => ParsePlain(line),
            };
        }
        catch (FormatException e)
        {
            throw Wrong(e.Message);
        }
    }

    private FileRecord ParsePlain(ReadOnlyMemory<byte> line) => line.Span.IndexOf(Tab) is >= 0 and var tab
        ? new FileRecord(Lines, line[..tab], line[(tab + 1)..])
        : throw Wrong("has no tab between key and value");

    private FileRecord Checked(FileRecord record)
    {
        if (record.Key.IsEmpty)
            throw Wrong("has an empty key");
        if (record.Key.Length > KvLimits.KeyBytesMax)
            throw Wrong($"has a key of {record.Key.Length} bytes; at most {KvLimits.KeyBytesMax} are allowed");
        return record.Value.Length <= KvLimits.ValueBytesMax
            ? record
            : throw Wrong($"has a value of {record.Value.Length} bytes; at most {KvLimits.ValueBytesMax} are allowed");
    }

    public void Dispose()
    {
        // A read that was abandoned on cancellation still uses the stream. The end of the process closes both.
        if (!_reading.IsCompleted)
            return;
        _stream?.Dispose();
        _file.Dispose();
    }

    private ReadOnlyMemory<byte> WithoutMarks(ReadOnlyMemory<byte> line)
    {
        var isMarked = Lines == 1 && line.Span.StartsWith(ByteOrderMark);
        var hasReturn = line.Span.EndsWith([CarriageReturn]);
        if (_text == TsvText.CrLf)
            return line[(isMarked ? ByteOrderMark.Length : 0)..(hasReturn ? ^1 : ^0)];
        if (isMarked)
            throw Wrong(
                "begins with a byte order mark. Use --crlf if lines end with carriage returns too, or --raw if it is a part of the key; otherwise remove it");
        return hasReturn ? throw Wrong("ends with a carriage return. Use --crlf if all lines end so, or --raw if it is a part of the value") : line;
    }

    private async ValueTask<ReadOnlyMemory<byte>?> ReadLineAsync(CancellationToken stop)
    {
        var searched = _start;
        while (true)
        {
            var length = _chunk.AsSpan(searched, _end - searched).IndexOf(NewLine);
            if (length >= 0)
            {
                var line = _chunk.AsMemory(_start, searched + length - _start);
                _start = searched + length + 1;
                return line;
            }

            if (_isAtEnd)
            {
                // The last line may lack a line feed. A plain null would be converted to empty memory.
                ReadOnlyMemory<byte>? last = _start == _end ? default(ReadOnlyMemory<byte>?) : _chunk.AsMemory(_start, _end - _start);
                _start = _end;
                return last;
            }

            var passed = _end - _start;
            await ReadMoreAsync(stop);
            searched = _start + passed;
        }
    }

    private async Task ReadMoreAsync(CancellationToken stop)
    {
        stop.ThrowIfCancellationRequested();
        if (_chunk.Length - _end < ReadBytesMin)
            BeginChunk();
        try
        {
            // On another thread, because a read of a pipe or a terminal may take any time and cannot be cancelled.
            _reading = Task.Run(() => (_stream ??= Unpacked()).Read(_chunk, _end, _chunk.Length - _end), CancellationToken.None);
            var read = await _reading.WaitAsync(stop);
            _end += read;
            _isAtEnd = read == 0;
        }
        catch (IOException e)
        {
            throw new CliException(ExitCodes.Usage, $"{_name} cannot be read after line {Lines}: {e.Message}");
        }
        catch (InvalidDataException e)
        {
            throw new CliException(ExitCodes.Usage, $"{_name} {e.Message} (after line {Lines}).");
        }
    }

    private Stream Unpacked()
    {
        var begin = new byte[CheckedGzipStream.Magic.Length];
        var read = _file.ReadAtLeast(begin, begin.Length, throwOnEndOfStream: false);
        var isGzip = begin.AsSpan(0, read).SequenceEqual(CheckedGzipStream.Magic);
        if (_isGzipByName && !isGzip && !CheckedGzipStream.Magic.StartsWith(begin.AsSpan(0, read)))
            throw new InvalidDataException("is not a gzip file");
        return isGzip || _isGzipByName ? new CheckedGzipStream(_file, begin.AsMemory(0, read)) : new JoinedStream(_file, begin.AsMemory(0, read));
    }

    // Copies the incomplete line at the end of the old chunk. The old chunk lives as long as its records.
    private void BeginChunk()
    {
        var part = _end - _start;
        var isEncoded = _form != RecordForm.Plain || (Lines == 0 && part > 0 && _chunk[_start] == '{');
        var bytesMax = isEncoded ? EncodedBytesMax : RecordBytesMax;
        if (part > bytesMax)
        {
            Lines++;
            throw Wrong($"is longer than the {bytesMax} bytes that a record can have");
        }

        var chunk = new byte[Math.Max(ChunkBytes, part * 2)];
        _chunk.AsSpan(_start, part).CopyTo(chunk);
        (_chunk, _start, _end) = (chunk, 0, part);
    }

    private CliException Wrong(string how) => new(ExitCodes.Usage, $"{_name}: line {Lines} {how}.");
}

/// <summary>What a reader of TSV files does with a byte order mark before the first line and carriage returns at the ends of lines.</summary>
internal enum TsvText
{
    /// <summary>Neither belongs there; they are refused.</summary>
    Plain,

    /// <summary>They belong to the text and to no record, and are left out.</summary>
    CrLf,

    /// <summary>They are bytes like any other.</summary>
    Raw,
}

/// <summary>How the lines of a file are written.</summary>
internal enum RecordForm
{
    /// <summary>Key, tab, value, without escapes.</summary>
    Plain,

    /// <summary><see cref="ExportLine"/>.</summary>
    Export,

    /// <summary><see cref="EntryLine"/>.</summary>
    Json,
}

/// <summary>One line of a file. Its memory belongs to a chunk that is never written again, so it stays valid.</summary>
/// <param name="Line">The line's number, from 1.</param>
/// <param name="Key">The key; of a plain file the bytes before the first tab.</param>
/// <param name="Value">The value; of a plain file the bytes after the first tab, up to the end of the line.</param>
internal readonly record struct FileRecord(long Line, ReadOnlyMemory<byte> Key, ReadOnlyMemory<byte> Value)
{
    /// <summary>How long the key lives from when it is written; null: until it is deleted.</summary>
    public TimeSpan? Left { get; init; }

    /// <summary>Whether a session owned the key where it was printed.</summary>
    public bool IsOwned { get; init; }
}
