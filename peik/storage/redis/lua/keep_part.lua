-- One part of a file. ARGV: the file, the part's place, the part. The file is as old as its first part.
call('HSET', P .. 'parts:' .. ARGV[1], ARGV[2], ARGV[3])
call('ZADD', P .. 'parts_kept', 'NX', server_ms(), ARGV[1])
return 1
